// Memory for workers, allocated before the work starts so that tasks cannot fail.
#ifndef HEED_SRC_PARALLEL_WORKER_SCRATCH_H_
#define HEED_SRC_PARALLEL_WORKER_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/parallel/dry_run.h"

namespace heed {

struct FreeFloats {
  size_t bytes = 0;     // of the block
  int64_t counted = 0;  // in a dry run
  void operator()(float* memory) const;
};

// Cache-line aligned floats, not initialised. Throws Error(kMemory). In a dry run they are counted
// and point to memory that may be neither read nor written.
class AlignedFloats {
 public:
  AlignedFloats() = default;
  explicit AlignedFloats(size_t count);
  float* get() const { return memory_.get(); }

 private:
  std::unique_ptr<float[], FreeFloats> memory_;
};

// Rounds up to a multiple.
constexpr size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace heed

#endif  // HEED_SRC_PARALLEL_WORKER_SCRATCH_H_
