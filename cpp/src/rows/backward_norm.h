// The way back through layer norm and RMS norm.
#ifndef HEED_SRC_ROWS_BACKWARD_NORM_H_
#define HEED_SRC_ROWS_BACKWARD_NORM_H_

#include <span>

#include "heed/layers.h"
#include "heed/rows.h"

namespace heed {

// Where the gradients of a norm go.
struct NormGradients {
  TensorView<float> d_x{};     // written
  std::span<float> d_scale{};  // added to, dim values; empty = not computed
  std::span<float> d_bias{};   // the same
};

// Gradients of LayerNorm() and RmsNorm() from d_y. With n = (x - mean) r, r = 1 / sqrt(variance +
// epsilon), g = d_y * weight:
//   d_x = r (g - mean(g) - n mean(g n)), for RMS without mean(g);  d_scale = sum over rows of d_y n
// in float64. x, d_y and d_x [batch, heads, len, dim], last dimension contiguous and of their own
// memory. A row at which only exact zeros arrive gives exactly 0, whatever is in it. Same bits for
// any number of threads. Throws Error(kMemory).
void NormBackward(Norm norm, const RowNormOptions& options, const TensorView<const float>& x,
                  const TensorView<const float>& d_y, const NormGradients& to, ThreadPool* pool);

}  // namespace heed

#endif  // HEED_SRC_ROWS_BACKWARD_NORM_H_
