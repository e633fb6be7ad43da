// Divisors made on the host give the quotients that / gives.
#include "src/cuda/divisor.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "random.h"

namespace heed::testing {
namespace {

constexpr int64_t kMost = (int64_t{1} << 31) - 1;

void ExpectDivides(int64_t divisor, int64_t n) {
  if (n < 0 || n > kMost) return;
  const int32_t quotient = cuda::Divisor(divisor).Quotient(static_cast<int32_t>(n));
  ASSERT_EQ(quotient, n / divisor) << n << " / " << divisor;
}
// Quotients change at multiples of the divisor.
void ExpectDividesAround(int64_t divisor, int64_t multiple) {
  for (int64_t n = multiple - 1; n <= multiple + 1; ++n) ExpectDivides(divisor, n);
}

TEST(Divisor, SmallNumbers) {
  for (int64_t divisor = 1; divisor <= 300; ++divisor) {
    for (int64_t n = 0; n <= 3000; ++n) ExpectDivides(divisor, n);
  }
}

TEST(Divisor, NumbersOfEverySize) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= 2000; ++d) divisors.push_back(d);
  for (int bit = 11; bit <= 31; ++bit) {
    for (int64_t apart = -3; apart <= 3; ++apart) {
      const int64_t d = (int64_t{1} << bit) + apart;
      if (d <= kMost) divisors.push_back(d);
    }
  }
  Random random(1);
  for (int n = 0; n < 2000; ++n) divisors.push_back(random.Integer(1, 1 << 30));
  for (const int64_t d : divisors) {
    for (int bit = 0; bit <= 31; ++bit) {
      ExpectDivides(d, (int64_t{1} << bit) - 1);
      ExpectDivides(d, (int64_t{1} << bit));
    }
    for (int n = 0; n < 40; ++n) ExpectDividesAround(d, random.Integer(0, 1 << 30) / d * d);
    ExpectDividesAround(d, kMost / d * d);
    ExpectDividesAround(d, (kMost / d - 1) * d);
  }
}

}  // namespace
}  // namespace heed::testing
