#include "src/parallel/dry_run.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <new>

#include "hwy/aligned_allocator.h"
#include "src/message.h"
#include "src/parallel/worker_scratch.h"

namespace heed {
namespace {

thread_local DryRun* current = nullptr;

// What AlignedFloats point to in a dry run.
alignas(64) float no_floats = 0;

// Highway starts memory where it does not compete for cache lines, with room before and behind it.
// A memory checker needs memory that ends with the last float: HEED_EXACT_MEMORY.
#ifdef HEED_EXACT_MEMORY
constexpr std::align_val_t kAlignment{64};
float* Allocate(size_t count) {
  if (count > std::numeric_limits<ptrdiff_t>::max() / sizeof(float)) return nullptr;
  return static_cast<float*>(::operator new(count * sizeof(float), kAlignment, std::nothrow));
}
void Free(float* memory) { ::operator delete(memory, kAlignment); }
#else
float* Allocate(size_t count) { return hwy::AllocateAligned<float>(count).release(); }
void Free(float* memory) { hwy::FreeAlignedBytes(memory, nullptr, nullptr); }
#endif

}  // namespace

DryRun::DryRun() : outer_(current) { current = this; }

DryRun::~DryRun() { current = outer_; }

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
  memory_.reset(none ? &no_floats : Allocate(count));
  if (memory_ == nullptr) {
    Fail(ErrorCode::kMemory, "could not allocate {} bytes of scratch memory",
         {count * sizeof(float)});
  }
}

void FreeFloats::operator()(float* memory) const {
  DryRun::Count(-counted);
  if (memory != &no_floats) Free(memory);
}

}  // namespace heed
