// Memory for workers, allocated before the work starts so that tasks cannot fail.
#ifndef HEED_SRC_PARALLEL_WORKER_SCRATCH_H_
#define HEED_SRC_PARALLEL_WORKER_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/parallel/dry_run.h"

namespace heed {

struct FreeFloats {
  size_t bytes = 0;     // of the block; 0: it belongs to someone else
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
  friend class FloatArrays;

  std::unique_ptr<float[], FreeFloats> memory_;
};

// Arrays that lie in one block of memory, which is asked for and given back once: calls of a few
// tokens would spend a tenth of their time on doing so for each.
class FloatArrays {
 public:
  // The array gets its memory, not initialised, when Allocate() is called, and must not be used
  // after this object.
  void Add(AlignedFloats& array, size_t count);
  // Once, after the last Add(). Throws Error(kMemory).
  void Allocate();

 private:
  static constexpr size_t kMostArrays = 16;

  struct Part {
    AlignedFloats* array;
    size_t offset;
  };
  Part parts_[kMostArrays];
  size_t num_parts_ = 0;
  size_t count_ = 0;
  AlignedFloats memory_;
};

// Rounds up to a multiple.
constexpr size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace heed

#endif  // HEED_SRC_PARALLEL_WORKER_SCRATCH_H_
