// Memory for workers, allocated before the work starts so that tasks cannot fail.
#ifndef HEED_SRC_PARALLEL_WORKER_SCRATCH_H_
#define HEED_SRC_PARALLEL_WORKER_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "heed/error.h"
#include "hwy/aligned_allocator.h"
#include "src/message.h"

namespace heed {

// While one lives, AlignedFloats made by its thread have no memory: their bytes are added up
// instead.
class AllocationCount {
 public:
  AllocationCount() : outer_(current) { current = this; }
  ~AllocationCount() { current = outer_; }
  AllocationCount(const AllocationCount&) = delete;
  AllocationCount& operator=(const AllocationCount&) = delete;

  int64_t bytes() const { return bytes_; }

 private:
  friend class AlignedFloats;
  static inline thread_local AllocationCount* current = nullptr;

  AllocationCount* outer_;
  int64_t bytes_ = 0;
};

// Cache-line aligned floats, not initialised. Throws Error(kMemory).
class AlignedFloats {
 public:
  AlignedFloats() = default;
  explicit AlignedFloats(size_t count) {
    if (count == 0) return;
    if (AllocationCount::current != nullptr) {
      AllocationCount::current->bytes_ += static_cast<int64_t>(count * sizeof(float));
      return;
    }
    memory_ = hwy::AllocateAligned<float>(count);
    if (memory_ == nullptr) {
      Fail(ErrorCode::kMemory, "could not allocate {} bytes of scratch memory",
           {count * sizeof(float)});
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
