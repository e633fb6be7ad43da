#include "src/parallel/kept_memory.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <mutex>
#include <new>

#include "heed/scratch.h"
#include "hwy/aligned_allocator.h"
#include "src/message.h"

namespace heed {
namespace {

// Highway starts memory where it does not compete for cache lines, with room before and behind it.
// A memory checker needs memory that ends with the last float, that has never been anything else
// and that spoils what is computed from it before it is written: HEED_EXACT_MEMORY.
#ifdef HEED_EXACT_MEMORY
constexpr std::align_val_t kAlignment{64};

void* Allocate(size_t bytes) {
  if (bytes > std::numeric_limits<ptrdiff_t>::max()) return nullptr;
  void* const memory = ::operator new(bytes, kAlignment, std::nothrow);
  if (memory != nullptr) {
    std::fill_n(static_cast<float*>(memory), bytes / sizeof(float),
                std::numeric_limits<float>::quiet_NaN());
  }
  return memory;
}

void Free(void* memory) { ::operator delete(memory, kAlignment); }
#else
void* Allocate(size_t bytes) { return hwy::AllocateAlignedBytes(bytes, nullptr, nullptr); }

void Free(void* memory) { hwy::FreeAlignedBytes(memory, nullptr, nullptr); }
#endif

// Does it pay to keep so much? What is smaller than a page the C library hands out sooner.
constexpr bool Keeps([[maybe_unused]] size_t bytes) {
#if defined(HEED_EXACT_MEMORY) || defined(__EMSCRIPTEN__)
  return false;
#else
  return bytes >= 4096;
#endif
}

// Sizes in steps, so that a call with a little more to do than the last one finds its memory. What
// is too much is never touched, so the system has no page for it. Not for what is never kept.
size_t InSteps(size_t bytes, size_t limit) {
  if (bytes > limit) return bytes;
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

// Blocks that nobody uses.
class Shelf {
 public:
  // The smallest block that holds so many bytes and not far more; the last one left of several,
  // which a cache still holds. Without one, how many bytes to ask the system for.
  MemoryBlock Take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    size_t best = count_;
    for (size_t i = 0; i < count_; ++i) {
      if (blocks_[i].bytes < bytes || blocks_[i].bytes / 2 > bytes) continue;
      if (best == count_ || blocks_[i].bytes <= blocks_[best].bytes) best = i;
    }
    return best == count_ ? MemoryBlock{nullptr, InSteps(bytes, limit_)} : Remove(best);
  }

  // Keeps the block, and gives back the oldest ones that have no room beside it.
  void Leave(MemoryBlock block) {
    for (;;) {
      MemoryBlock oldest = block;
      {
        const std::lock_guard lock(mutex_);
        if (block.bytes <= limit_) {
          // While another thread lowers the limit, more may be kept than it allows.
          const bool fits = bytes_ <= limit_ && block.bytes <= limit_ - bytes_;
          if (count_ < kMostBlocks && fits) return Add(block);
          oldest = Remove(0);
        }
      }
      Free(oldest.memory);
      if (oldest.memory == block.memory) return;
    }
  }

  void SetLimit(size_t bytes) {
    for (;;) {
      MemoryBlock oldest;
      {
        const std::lock_guard lock(mutex_);
        limit_ = bytes;
        if (bytes_ <= limit_) return;
        oldest = Remove(0);
      }
      Free(oldest.memory);
    }
  }

  size_t Bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  static constexpr size_t kMostBlocks = 64;

  void Add(MemoryBlock block) {
    blocks_[count_++] = block;
    bytes_ += block.bytes;
  }

  MemoryBlock Remove(size_t index) {
    const MemoryBlock block = blocks_[index];
    std::copy(blocks_ + index + 1, blocks_ + count_, blocks_ + index);
    --count_;
    bytes_ -= block.bytes;
    return block;
  }

  std::mutex mutex_;
  MemoryBlock blocks_[kMostBlocks];  // the oldest first
  size_t count_ = 0;
  size_t bytes_ = 0;  // of all of them, at most limit_
  size_t limit_ = kDefaultKeptScratch;
};

// Never destroyed: threads may still end a call when static objects are gone.
Shelf& TheShelf() {
  static Shelf& shelf = *new Shelf;
  return shelf;
}

}  // namespace

MemoryBlock TakeMemory(size_t bytes) {
  if (!Keeps(bytes)) return {Allocate(bytes), bytes};
  MemoryBlock block = TheShelf().Take(bytes);
  if (block.memory == nullptr) block.memory = Allocate(block.bytes);
  return block;
}

void LeaveMemory(MemoryBlock block) {
  if (!Keeps(block.bytes)) return Free(block.memory);
  TheShelf().Leave(block);
}

void SetKeptScratch(int64_t bytes) {
  if (bytes < 0) {
    Fail(ErrorCode::kRange, "bytes = {}; what is kept must not be negative", {bytes});
  }
  TheShelf().SetLimit(static_cast<size_t>(bytes));
}

int64_t KeptScratch() { return static_cast<int64_t>(TheShelf().Bytes()); }

}  // namespace heed
