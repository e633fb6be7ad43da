#include "src/parallel/dry_run.h"

#include <algorithm>
#include <cstdint>

namespace heed {
namespace {

thread_local DryRun* current = nullptr;

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

}  // namespace heed
