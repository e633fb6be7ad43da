// tanh of every target against std::tanh in double, over all magnitudes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/tanh_test.cc"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "simd_targets.h"
#include "src/simd/tanh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::testing {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// values[n] = tanh(values[n]), four vectors at a time as the kernel does; count is a multiple
// of 64.
void TanhInPlace(float* values, size_t count) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  for (size_t n = 0; n < count; n += 4 * lanes) {
    hn::Vec<decltype(d)> x[4];
    for (size_t i = 0; i < 4; ++i) x[i] = hn::LoadU(d, values + n + i * lanes);
    heed::HWY_NAMESPACE::Tanh(d, x);
    for (size_t i = 0; i < 4; ++i) hn::StoreU(x[i], d, values + n + i * lanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed::testing
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::testing {
namespace {

HWY_EXPORT(TanhInPlace);

constexpr size_t kChunk = 4096;
constexpr double kMaxUlp = 3.5;  // what tanh-inl.h says; Highway's own has 4

class Tanh : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Tanh);

std::vector<float> TanhOf(std::vector<float> values) {
  const size_t count = values.size();
  values.resize((count + 63) / 64 * 64, 0.0f);
  HWY_DYNAMIC_DISPATCH(TanhInPlace)(values.data(), values.size());
  values.resize(count);
  return values;
}

// Error in units of the last place of a float result.
double UlpError(float actual, double expected) {
  if (expected == 0) return actual == 0 ? 0 : INFINITY;
  const double ulp = std::ldexp(1.0, std::max(std::ilogb(expected), -126) - 23);
  return std::abs(actual - expected) / ulp;
}

// The largest error over the floats from `low` to `high`, both positive, in steps of `stride`.
double WorstError(float low, float high, uint32_t stride) {
  double worst = 0;
  std::vector<float> x;
  const uint32_t last = std::bit_cast<uint32_t>(high);
  for (uint32_t bits = std::bit_cast<uint32_t>(low); bits < last; bits += stride) {
    x.push_back(std::bit_cast<float>(bits));
    if (x.size() < kChunk && bits + stride < last) continue;
    const std::vector<float> y = TanhOf(x);
    for (size_t n = 0; n < x.size(); ++n) {
      worst = std::max(worst, UlpError(y[n], std::tanh(static_cast<double>(x[n]))));
    }
    x.clear();
  }
  return worst;
}

TEST_P(Tanh, IsWithinItsErrorBound) {
  EXPECT_LE(WorstError(0.0f, 0x1p-126f, 4001), kMaxUlp);
  EXPECT_LE(WorstError(0x1p-126f, 0x1p-10f, 10007), kMaxUlp);
  EXPECT_LE(WorstError(0x1p-10f, 12.0f, 499), kMaxUlp);
  EXPECT_LE(WorstError(12.0f, 3e38f, 50021), kMaxUlp);
}

TEST_P(Tanh, IsOdd) {
  std::vector<float> x, negative;
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 100003) {
    x.push_back(std::bit_cast<float>(bits));
    negative.push_back(-x.back());
  }
  const std::vector<float> y = TanhOf(x), mirrored = TanhOf(negative);
  for (size_t n = 0; n < x.size(); ++n) {
    EXPECT_EQ(std::bit_cast<uint32_t>(y[n]), std::bit_cast<uint32_t>(-mirrored[n])) << x[n];
  }
}

TEST_P(Tanh, StaysWithinOneAndReachesItAtInfinity) {
  std::vector<float> x;
  for (uint32_t bits = std::bit_cast<uint32_t>(1.0f); bits < 0x7f800000u; bits += 40009) {
    x.push_back(std::bit_cast<float>(bits));
  }
  for (const float y : TanhOf(x)) EXPECT_LE(y, 1.0f);
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(TanhOf({inf, -inf, 30.0f, -30.0f}), (std::vector<float>{1, -1, 1, -1}));
}

TEST_P(Tanh, KeepsNan) {
  for (const float y : TanhOf(std::vector<float>(64, std::numeric_limits<float>::quiet_NaN()))) {
    EXPECT_TRUE(std::isnan(y));
  }
}

}  // namespace
}  // namespace heed::testing
#endif  // HWY_ONCE
