// What operator new is asked for, by this thread: counted, and refused.
#ifndef HEED_TESTS_ALLOCATIONS_H_
#define HEED_TESTS_ALLOCATIONS_H_

#include <cstddef>
#include <cstdint>

namespace heed::testing {

// Calls of operator new since the thread began.
int64_t Allocations();

// While it lives, operator new throws std::bad_alloc for more than `bytes` at once.
class LargestAllocation {
 public:
  explicit LargestAllocation(size_t bytes);
  ~LargestAllocation();
};

// While it lives, the n-th call of operator new throws std::bad_alloc, n >= 1, and no other does.
class FailingAllocation {
 public:
  explicit FailingAllocation(int64_t n);
  ~FailingAllocation();
  // Have there been so many?
  bool failed() const;
};

// While it lives, calls of operator new are not counted, and none fails: what a test itself does in
// the midst of a call.
class UncountedAllocations {
 public:
  UncountedAllocations();
  ~UncountedAllocations();

 private:
  int64_t allocations_, failing_;
};

}  // namespace heed::testing

#endif  // HEED_TESTS_ALLOCATIONS_H_
