#include "allocations.h"

#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr size_t kAll = std::numeric_limits<size_t>::max();

thread_local int64_t allocations = 0;
thread_local size_t largest = kAll;
thread_local int64_t failing = 0;  // the count at which one fails

void* Allocate(std::size_t size) {
  ++allocations;
  if (size > largest || allocations == failing) throw std::bad_alloc();
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// The replaceable functions that all others come down to.
void* operator new(std::size_t size) { return Allocate(size); }
void* operator new[](std::size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace heed::testing {

int64_t Allocations() { return allocations; }

LargestAllocation::LargestAllocation(size_t bytes) { largest = bytes; }
LargestAllocation::~LargestAllocation() { largest = kAll; }

FailingAllocation::FailingAllocation(int64_t n) { failing = allocations + n; }
FailingAllocation::~FailingAllocation() { failing = 0; }
bool FailingAllocation::failed() const { return allocations >= failing; }

UncountedAllocations::UncountedAllocations() : allocations_(allocations), failing_(failing) {
  failing = 0;
}
UncountedAllocations::~UncountedAllocations() {
  allocations = allocations_;
  failing = failing_;
}

}  // namespace heed::testing
