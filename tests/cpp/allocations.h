// Counts what operator new is asked for, by this thread.
#ifndef HEED_TESTS_ALLOCATIONS_H_
#define HEED_TESTS_ALLOCATIONS_H_

#include <cstdint>

namespace heed::testing {

// Calls of operator new since the thread began.
int64_t Allocations();

}  // namespace heed::testing

#endif  // HEED_TESTS_ALLOCATIONS_H_
