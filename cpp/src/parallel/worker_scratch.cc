#include "src/parallel/worker_scratch.h"

#include <cstddef>
#include <cstdint>
#include <limits>

#include "src/message.h"
#include "src/parallel/dry_run.h"
#include "src/parallel/kept_memory.h"

namespace heed {
namespace {

// What AlignedFloats point to in a dry run.
alignas(64) float no_floats = 0;

}  // namespace

AlignedFloats::AlignedFloats(size_t count) {
  if (count == 0) return;
  const size_t bytes = count * sizeof(float);
  DryRun* const dry = DryRun::Current();
  if (dry != nullptr) {
    memory_.get_deleter().counted = static_cast<int64_t>(bytes);
    dry->AddBytes(memory_.get_deleter().counted);
  }
  if (dry != nullptr && !dry->real_memory()) {
    memory_.reset(&no_floats);
    return;
  }
  MemoryBlock block;
  if (count <= std::numeric_limits<ptrdiff_t>::max() / sizeof(float)) block = TakeMemory(bytes);
  if (block.memory == nullptr) {
    Fail(ErrorCode::kMemory, "could not allocate {} bytes of scratch memory", {bytes});
  }
  memory_.get_deleter().bytes = block.bytes;
  memory_.reset(static_cast<float*>(block.memory));
}

void FreeFloats::operator()(float* memory) const {
  DryRun::Count(-counted);
  if (bytes != 0) LeaveMemory({memory, bytes});
}

void FloatArrays::Add(AlignedFloats& array, size_t count) {
  // A memory checker sees the end of each.
#ifdef HEED_EXACT_MEMORY
  array = AlignedFloats(count);
#else
  if (count == 0) return;
  constexpr size_t kLine = 64 / sizeof(float);
  parts_[num_parts_++] = {&array, count_};
  if (__builtin_add_overflow(count_, count, &count_) || count_ > SIZE_MAX - kLine) {
    Fail(ErrorCode::kMemory, "the scratch memory is more than can be addressed");
  }
  count_ = RoundUp(count_, kLine);
#endif
}

void FloatArrays::Allocate() {
  memory_ = AlignedFloats(count_);
  float* const start = memory_.get();
  for (size_t i = 0; i < num_parts_; ++i) {
    parts_[i].array->memory_.reset(start == &no_floats ? start : start + parts_[i].offset);
  }
}

}  // namespace heed
