// Matrix products: the linear map of layers, and products of batches of matrices.
#ifndef HEED_LINEAR_H_
#define HEED_LINEAR_H_

#include <span>

#include "heed/error.h"
#include "heed/tensor.h"
#include "heed/thread_pool.h"

namespace heed {

// Largest error of an element of Linear and Bmm against exact arithmetic, relative to the sum of
// the absolute values of the terms that were added. Sums of n terms round 256 + n / 256 times in a
// row; terms of mixed signs stay ten times below this constant, equal terms, whose roundings all go
// one way, just below. Docs and tests read it.
inline constexpr double kLinearMaxError = 4e-6;

// Computes out[.., o] = sum_i x[.., i] weight[o, i] + bias[o]: PyTorch's layout of weights.
//
// Shapes   x [batch, heads, len, in_dim], last dimension contiguous; weight [1, 1, out_dim, in_dim]
//          with a unit stride in one of its two dimensions, so that the transpose of a contiguous
//          [in_dim, out_dim] matrix (Keras, JAX) needs no copy; bias empty or out_dim values; out
//          [batch, heads, len, out_dim]. Other strides are free. in_dim 0 gives the bias.
// Errors   Error(kShape | kOption | kMemory), before anything is written. out may not overlap x or
//          weight.
// Accuracy kLinearMaxError. What is not finite in a row of x stays in that row of out, what is not
//          finite in a row of weight in that column.
// Cost     2 * rows * in_dim * out_dim FLOPs. Allocates packed copies of x (up to 4 MiB or 96 rows
//          per thread at a time) and, for more than 96 rows, of weight; 96 x 256 floats per thread.
// Threads  `pool` or the default pool. Same bits for any number of threads; a row's bits do not
//          depend on the other rows. Safe to call from several threads at once.
void Linear(TensorView<const float> x, TensorView<const float> weight, std::span<const float> bias,
            TensorView<float> out, ThreadPool* pool = nullptr);

// Computes out[b, h] = a[b, h] x b[b, h] for every batch entry and head.
//
// Shapes   a [batch, heads, m, k], last dimension contiguous; b [batch, heads, k, n] with a unit
//          stride in one of its last two dimensions (TransposedView makes a b^T); out [batch,
//          heads, m, n]. An extent of 1 for batch or heads of a or b broadcasts.
// The rest as in Linear, with b as the weight.
void Bmm(TensorView<const float> a, TensorView<const float> b, TensorView<float> out,
         ThreadPool* pool = nullptr);

// Views a contiguous [rows, cols] matrix as [1, 1, rows, cols].
template <typename T>
TensorView<T> MatrixView(T* data, int64_t rows, int64_t cols) {
  return Contiguous(data, 1, 1, rows, cols);
}

// Views [batch, heads, rows, cols] as [batch, heads, cols, rows]: no copy.
template <typename T>
TensorView<T> TransposedView(const TensorView<T>& view) {
  return {view.data,
          {view.shape[0], view.shape[1], view.shape[3], view.shape[2]},
          {view.strides[0], view.strides[1], view.strides[3], view.strides[2]}};
}

}  // namespace heed

#endif  // HEED_LINEAR_H_
