// Memory of calls that are over, for calls to come: heed/scratch.h.
#ifndef HEED_SRC_PARALLEL_KEPT_MEMORY_H_
#define HEED_SRC_PARALLEL_KEPT_MEMORY_H_

#include <cstddef>

namespace heed {

// Memory that starts at a cache line.
struct MemoryBlock {
  void* memory = nullptr;
  size_t bytes = 0;  // at least what was asked for
};

// Memory that was kept, or new memory; never initialised. nullptr: there is none.
MemoryBlock TakeMemory(size_t bytes);

// Keeps the memory or gives it back to the system.
void LeaveMemory(MemoryBlock block);

}  // namespace heed

#endif  // HEED_SRC_PARALLEL_KEPT_MEMORY_H_
