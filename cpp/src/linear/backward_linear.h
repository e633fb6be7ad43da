// The way back through a linear map.
#ifndef HEED_SRC_LINEAR_BACKWARD_LINEAR_H_
#define HEED_SRC_LINEAR_BACKWARD_LINEAR_H_

#include <cstdint>
#include <span>

#include "heed/tensor.h"
#include "heed/thread_pool.h"

namespace heed {

// Where the gradients of a linear map are written; those without a value are not computed.
struct LinearGradients {
  TensorView<float> d_x{};       // as x, last dimension contiguous
  TensorView<float> d_weight{};  // as weight, last dimension contiguous
  std::span<float> d_bias{};     // out_dim values
};

// Gradients of y = x W^T + b (heed::Linear()) from d_y:
//   d_x = d_y W,  d_weight = sum over rows of d_y^T x,  d_bias = sum over rows of d_y.
// x [batch, heads, len, in_dim], d_y [batch, heads, len, out_dim], weight [1, 1, out_dim, in_dim];
// strides as in Linear(). None may overlap a gradient.
//
// In d_weight a factor of exactly 0 takes nothing from what it meets, not even NaN: a row that
// nothing sees cannot matter. Same bits for any number of threads. Allocates copies of x and d_y.
// Throws Error(kMemory).
void LinearBackward(const TensorView<const float>& x, const TensorView<const float>& weight,
                    const TensorView<const float>& d_y, const LinearGradients& to,
                    ThreadPool& pool);

// Writes rows [batch, heads, len, dim], last dimension contiguous, as columns: `to` is [dim, batch
// * heads * len].
void TransposeRows(const TensorView<const float>& rows, float* to, ThreadPool* pool);

// Copies rows, both [batch, heads, len, dim] with a contiguous last dimension.
void CopyInto(const TensorView<const float>& from, const TensorView<float>& to, ThreadPool& pool);

// Row n of all those of a tensor, in the order of its extents.
template <typename T>
T* RowOf(const TensorView<T>& view, int64_t n) {
  const int64_t i = n % view.shape[2], unit = n / view.shape[2];
  const int64_t h = unit % view.shape[1], b = unit / view.shape[1];
  return view.data + b * view.strides[0] + h * view.strides[1] + i * view.strides[2];
}

inline int64_t RowCount(const Extents& shape) { return shape[0] * shape[1] * shape[2]; }

}  // namespace heed

#endif  // HEED_SRC_LINEAR_BACKWARD_LINEAR_H_
