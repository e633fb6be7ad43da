// A call of recurrent attention as the device path checks it.
#ifndef HEED_TESTS_CUDA_CHECKED_CALL_H_
#define HEED_TESTS_CUDA_CHECKED_CALL_H_

#include <cstdint>

#include "buffer.h"
#include "src/cuda/chunk_plan.h"
#include "stored_buffer.h"

namespace heed::testing {

// Of a call's tensors only shapes are looked at: batch, heads, kv_heads, len, dim and dim_v.
template <class Call>
cuda::StoredRecurrentProblem CheckedCall(const Call& c, const RecurrentOptions& options,
                                         DType dtype) {
  static Buffer<uint32_t> q, k, v;  // as wide as the widest type
  static Buffer<float> output;
  q = {{c.batch, c.heads, c.len, c.dim}, Layout::kDense, 0};
  k = {{c.batch, c.kv_heads, c.len, c.dim}, Layout::kDense, 0};
  v = {{c.batch, c.kv_heads, c.len, c.dim_v}, Layout::kDense, 0};
  output = {{c.batch, c.heads, c.len, c.dim_v}, Layout::kDense, 0};
  const auto stored = [&](const Buffer<uint32_t>& buffer) {
    return StoredTensor(buffer.view().data, dtype, buffer.shape(), buffer.view().strides);
  };
  return cuda::ValidateStoredRecurrentForDevice(stored(q), stored(k), stored(v), options,
                                                {StoredOutput(output.view()), {}});
}

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_CHECKED_CALL_H_
