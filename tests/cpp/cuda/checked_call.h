// A call of recurrent attention as the device path checks it.
#ifndef HEED_TESTS_CUDA_CHECKED_CALL_H_
#define HEED_TESTS_CUDA_CHECKED_CALL_H_

#include <cstdint>

#include "src/cuda/chunk_plan.h"

namespace heed::testing {

// Of a call's tensors only shapes are looked at: batch, heads, kv_heads, len, dim and dim_v. They
// lie where nothing does, far apart.
template <class Call>
cuda::StoredRecurrentProblem CheckedCall(const Call& c, const RecurrentOptions& options,
                                         DType dtype) {
  const auto tensor = [&](uintptr_t place, int64_t heads, int64_t width) {
    void* const nowhere = reinterpret_cast<void*>(place << 40);
    return StoredOutput(nowhere, dtype, {c.batch, heads, c.len, width},
                        {heads * c.len * width, c.len * width, width, 1});
  };
  const auto input = [&](uintptr_t place, int64_t heads, int64_t width) {
    const StoredOutput like = tensor(place, heads, width);
    return StoredTensor(like.data, dtype, like.shape, like.strides);
  };
  StoredOutput output = tensor(4, c.heads, c.dim_v);
  output.dtype = DType::kFloat32;
  return cuda::ValidateStoredRecurrentForDevice(
      input(1, c.heads, c.dim), input(2, c.kv_heads, c.dim), input(3, c.kv_heads, c.dim_v), options,
      {output, {}});
}

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_CHECKED_CALL_H_
