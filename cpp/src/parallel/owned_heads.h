// A tensor with memory of its own.
#ifndef HEED_SRC_PARALLEL_OWNED_HEADS_H_
#define HEED_SRC_PARALLEL_OWNED_HEADS_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "heed/tensor.h"
#include "src/message.h"
#include "src/parallel/worker_scratch.h"

namespace heed {

// [batch, heads, len, dim] with the heads of a row side by side, not initialised. Throws
// Error(kMemory). Empty tensors have a pointer too: absent means something else.
struct OwnedHeads {
  AlignedFloats memory;
  TensorView<float> view;

  OwnedHeads() = default;
  OwnedHeads(int64_t batch, int64_t heads, int64_t len, int64_t dim) {
    int64_t count = 0;
    if (__builtin_mul_overflow(batch, heads, &count) ||
        __builtin_mul_overflow(count, len, &count) || __builtin_mul_overflow(count, dim, &count) ||
        count > std::numeric_limits<ptrdiff_t>::max() / 4) {
      Fail(ErrorCode::kMemory, "the projections are more than can be addressed");
    }
    memory = AlignedFloats(static_cast<size_t>(std::max<int64_t>(1, count)));
    view = ContiguousBlhd(memory.get(), batch, len, heads, dim);
  }

  float* data() const { return memory.get(); }
};

}  // namespace heed

#endif  // HEED_SRC_PARALLEL_OWNED_HEADS_H_
