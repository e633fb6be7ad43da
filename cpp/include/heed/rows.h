// Functions of single rows, the building blocks around attention: softmax, its logarithm, softmax
// with lengths and masks, layer norm and RMS norm.
#ifndef HEED_ROWS_H_
#define HEED_ROWS_H_

#include <cstdint>
#include <span>

#include "heed/error.h"
#include "heed/tensor.h"
#include "heed/thread_pool.h"

namespace heed {

// Largest error of a weight of Softmax and MaskedSoftmax against float64, absolute, and of an
// element of LogSoftmax relative to max(1, |result|). Docs and tests read it.
inline constexpr double kSoftmaxMaxError = 1e-6;

// Largest error of an element of LayerNorm and RmsNorm against float64, relative to
// |weight| * |normed| + |bias|. Docs and tests read it.
inline constexpr double kNormMaxError = 3e-7;

// Computes out = exp(x) / sum exp(x) along one axis, relative to the largest x.
//
// Shapes   x and out [batch, heads, len, dim], strides free, last dimension contiguous; `axis` 0 to
//          3 is what is summed over.
// Edges    -inf gets weight 0; a row of -inf alone is all zeros. NaN or +inf make all of their row
//          NaN, and no other row.
// Errors   Error(kShape | kRange | kOption), before anything is written. out may not overlap x.
// Accuracy kSoftmaxMaxError.
// Cost     three passes over a row; allocates nothing.
// Threads  `pool` or the default pool. Same bits for any number of threads.
void Softmax(TensorView<const float> x, TensorView<float> out, int axis = 3,
             ThreadPool* pool = nullptr);

// Computes out = log(softmax(x)) = x - log sum exp(x). Large logits do not overflow. A row of -inf
// alone stays -inf. The rest as Softmax().
void LogSoftmax(TensorView<const float> x, TensorView<float> out, int axis = 3,
                ThreadPool* pool = nullptr);

// Which entries of a row count: all that both rules leave.
struct MaskedSoftmaxOptions {
  // The first `lengths` entries count. Empty = all, else [batch] or [batch, len] values in [0,
  // dim].
  std::span<const int32_t> lengths;
  // Nonzero = counts. Extents broadcast (1) to [batch, heads, len, dim].
  TensorView<const uint8_t> keep;
};

// Softmax over the last dimension among the entries that count; the others are 0 and never read:
// NaN behind a mask does not matter. A row without entries is all zeros.
//
//   lengths {1, 3}, x [2, 1, 2, 4]:   batch 0  x . . .     batch 1  x x x .
//                                              x . . .              x x x .
//
// The rest as Softmax(). Source of the two kinds of lengths: Zhang et al., Dive into Deep Learning,
// section 11.3 (masked_softmax), which fills with -1e6 instead of leaving out.
void MaskedSoftmax(TensorView<const float> x, const MaskedSoftmaxOptions& options,
                   TensorView<float> out, ThreadPool* pool = nullptr);

// Factors and sums per element of a row, and what keeps a row of equal numbers finite.
struct RowNormOptions {
  std::span<const float> weight;  // dim values; empty = ones
  std::span<const float> bias;    // dim values; empty = zeros
  double epsilon = 1e-5;          // > 0 and finite
};

// What LayerNorm found out about each row, [batch, heads, len, 1]; computed when they have a value.
struct RowStatistics {
  TensorView<float> mean{};
  TensorView<float> inverse_deviation{};  // 1 / sqrt(variance + epsilon)
};

// Computes out = (x - mean) / sqrt(variance + epsilon) * weight + bias over the last dimension,
// with the variance of all elements (divided by dim).
//
// Shapes   x and out [batch, heads, len, dim], last dimension contiguous. dim 0 gives nothing.
// Errors   Error(kShape | kRange | kOption), before anything is written. out may be x, otherwise
//          not overlap it.
// Accuracy kNormMaxError: mean, variance and quotient are float64.
// Cost     three passes over a row; allocates nothing.
// Threads  `pool` or the default pool. Same bits for any number of threads.
// Source   Ba, Kiros & Hinton 2016, Layer Normalization, arXiv:1607.06450.
void LayerNorm(TensorView<const float> x, const RowNormOptions& options, TensorView<float> out,
               const RowStatistics& statistics = {}, ThreadPool* pool = nullptr);

// Computes out = x / sqrt(mean of squares + epsilon) * weight + bias. The rest as LayerNorm().
// Source   Zhang & Sennrich 2019, Root Mean Square Layer Normalization, arXiv:1910.07467.
void RmsNorm(TensorView<const float> x, const RowNormOptions& options, TensorView<float> out,
             ThreadPool* pool = nullptr);

}  // namespace heed

#endif  // HEED_ROWS_H_
