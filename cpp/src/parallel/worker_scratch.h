// Memory for workers, allocated before the work starts so that tasks cannot fail.
#ifndef HEED_SRC_PARALLEL_WORKER_SCRATCH_H_
#define HEED_SRC_PARALLEL_WORKER_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "heed/error.h"
#include "hwy/aligned_allocator.h"

namespace heed {

// Cache-line aligned floats, not initialised. Throws Error(kMemory).
class AlignedFloats {
 public:
  AlignedFloats() = default;
  explicit AlignedFloats(size_t count) {
    if (count == 0) return;
    memory_ = hwy::AllocateAligned<float>(count);
    if (memory_ == nullptr) {
      throw Error(ErrorCode::kMemory, "could not allocate " +
                                          std::to_string(count * sizeof(float)) +
                                          " bytes of scratch memory");
    }
  }
  float* get() const { return memory_.get(); }

 private:
  hwy::AlignedFreeUniquePtr<float[]> memory_;
};

// Rounds up to a multiple.
constexpr size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace heed

#endif  // HEED_SRC_PARALLEL_WORKER_SCRATCH_H_
