#include "src/parallel/dry_run.h"

#include <algorithm>

#include "hwy/aligned_allocator.h"
#include "src/message.h"
#include "src/parallel/worker_scratch.h"

namespace heed {
namespace {

// What AlignedFloats point to in a dry run.
alignas(64) float no_floats = 0;

}  // namespace

thread_local DryRun* DryRun::current = nullptr;

DryRun* DryRun::Current() { return current; }

void DryRun::AddBytes(int64_t bytes) {
  bytes_ += bytes;
  most_bytes_ = std::max(most_bytes_, bytes_);
}

void DryRun::Count(int64_t bytes) {
  if (current != nullptr) current->AddBytes(bytes);
}

AlignedFloats::AlignedFloats(size_t count) {
  if (count == 0) return;
  DryRun* const dry = DryRun::Current();
  if (dry != nullptr) {
    memory_.get_deleter().counted = static_cast<int64_t>(count * sizeof(float));
    dry->AddBytes(memory_.get_deleter().counted);
  }
  const bool none = dry != nullptr && !dry->real_memory();
  memory_.reset(none ? &no_floats : hwy::AllocateAligned<float>(count).release());
  if (memory_ == nullptr) {
    Fail(ErrorCode::kMemory, "could not allocate {} bytes of scratch memory",
         {count * sizeof(float)});
  }
}

void FreeFloats::operator()(float* memory) const {
  DryRun::Count(-counted);
  if (memory != &no_floats) hwy::FreeAlignedBytes(memory, nullptr, nullptr);
}

}  // namespace heed
