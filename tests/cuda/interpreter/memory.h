// The memory of the device, which is the host's, and what of it is allocated.
#ifndef HEED_TESTS_CUDA_INTERPRETER_MEMORY_H_
#define HEED_TESTS_CUDA_INTERPRETER_MEMORY_H_

#include <cstddef>
#include <cstdint>

namespace heed::interpreter {

struct Range {
  uint64_t begin = 0, bytes = 0;
  bool Holds(uint64_t address, uint64_t count) const {
    return address - begin < bytes && bytes - (address - begin) >= count;
  }
};

// Filled with NaN, whatever the type; surrounded by memory that is not allocated. Never fails.
void* Allocate(size_t bytes);
// Whether it was allocated.
bool Free(void* pointer);
// The allocation that holds the address; of no bytes when none does.
Range FindRange(uint64_t address);
// Changes with each Allocate() and Free(): what FindRange() said before may be wrong.
uint64_t Generation();

}  // namespace heed::interpreter

#endif  // HEED_TESTS_CUDA_INTERPRETER_MEMORY_H_
