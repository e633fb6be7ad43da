// Products of matrices after validation: what the kernel works on.
#ifndef HEED_SRC_LINEAR_GEMM_H_
#define HEED_SRC_LINEAR_GEMM_H_

#include <cstdint>
#include <span>

#include "heed/tensor.h"
#include "heed/thread_pool.h"

namespace heed {

// out[b, h] = a[b, h] x b[b, h] + bias. Extents agree; where one broadcasts its stride is 0.
struct GemmProblem {
  TensorView<const float> a;    // [batch, heads, m, k], last dimension contiguous
  TensorView<const float> b;    // [batch, heads, k, n], strides[2] or strides[3] is 1
  std::span<const float> bias;  // n values or none
  TensorView<float> out;        // [batch, heads, m, n], last dimension contiguous
};

// Throws Error(kMemory) before anything is written.
void Gemm(const GemmProblem& problem, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_LINEAR_GEMM_H_
