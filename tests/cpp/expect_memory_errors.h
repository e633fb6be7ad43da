// Calls whose allocations fail, one after the other.
#ifndef HEED_TESTS_EXPECT_MEMORY_ERRORS_H_
#define HEED_TESTS_EXPECT_MEMORY_ERRORS_H_

#include <cstdint>
#include <exception>
#include <string>

#include "allocations.h"
#include "gtest/gtest.h"
#include "heed/error.h"

namespace heed::testing {

// Calls body() with its n-th allocation failing. Returns whether there are so many.
template <class Body>
bool FailOnce(int64_t n, const Body& body) {
  const FailingAllocation failing(n);
  body();
  return failing.failed();
}

// Fails one allocation of body() after the other, until it has no more; see(failure) looks at what
// has been written. body() is one call of the library and allocates nothing else.
template <class Body, class See>
void ExpectMemoryErrors(const std::string& what, const Body& body, const See& see) {
  SCOPED_TRACE(what);
  body();  // what is made once and stays, as the table of functions of a SIMD target, is there
  int64_t failures = 0;
  for (int64_t n = 1;; ++n) {
    ASSERT_LT(n, 20000) << "a call without end";
    try {
      if (!FailOnce(n, body)) break;  // the library may go on without some
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kMemory) << error.what() << ", allocation " << n;
      ++failures;
      see();
    } catch (const std::exception& error) {
      FAIL() << error.what() << " at allocation " << n;
    }
  }
  EXPECT_GT(failures, 0);
  EXPECT_NO_THROW(body());
}

template <class Body>
void ExpectMemoryErrors(const std::string& what, const Body& body) {
  ExpectMemoryErrors(what, body, [] {});
}

}  // namespace heed::testing

#endif  // HEED_TESTS_EXPECT_MEMORY_ERRORS_H_
