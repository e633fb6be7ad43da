// 2^x of every target against std::exp2 in double, over all magnitudes that softmax meets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/exp2_test.cc"
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "simd_targets.h"
#include "src/simd/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::testing {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// values[n] = 2^values[n], two vectors at a time as the kernels do; count is a multiple of 64.
void Exp2InPlace(float* values, size_t count) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  for (size_t n = 0; n < count; n += 2 * lanes) {
    hn::Vec<decltype(d)> x[2] = {hn::LoadU(d, values + n), hn::LoadU(d, values + n + lanes)};
    heed::HWY_NAMESPACE::Exp2NonPositive(d, x);
    hn::StoreU(x[0], d, values + n);
    hn::StoreU(x[1], d, values + n + lanes);
  }
}

// The target that this copy of the file was compiled for.
int64_t CompiledTarget() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace heed::testing
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::testing {
namespace {

HWY_EXPORT(Exp2InPlace);
HWY_EXPORT(CompiledTarget);

constexpr size_t kChunk = 4096;

class Exp2 : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Exp2);

std::vector<float> Exp2Of(std::vector<float> values) {
  const size_t count = values.size();
  values.resize((count + 63) / 64 * 64, 0.0f);
  HWY_DYNAMIC_DISPATCH(Exp2InPlace)(values.data(), values.size());
  values.resize(count);
  return values;
}

// Error in units of the last place of a float result.
double UlpError(float actual, double expected) {
  const double ulp = std::ldexp(1.0, std::max(std::ilogb(expected), -126) - 23);
  return std::abs(actual - expected) / ulp;
}

// The largest error over [from, to), both negative, in steps of `stride` floats.
double WorstError(float from, float to, uint32_t stride) {
  double worst = 0;
  std::vector<float> x;
  const uint32_t last = std::bit_cast<uint32_t>(from);
  for (uint32_t bits = std::bit_cast<uint32_t>(to); bits < last; bits += stride) {
    x.push_back(std::bit_cast<float>(bits));
    if (x.size() < kChunk && bits + stride < last) continue;
    const std::vector<float> y = Exp2Of(x);
    for (size_t n = 0; n < x.size(); ++n) {
      worst = std::max(worst, UlpError(y[n], std::exp2(static_cast<double>(x[n]))));
    }
    x.clear();
  }
  return worst;
}

TEST_P(Exp2, RunsTheTargetUnderTest) {
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(CompiledTarget)(), GetParam());
}

TEST_P(Exp2, IsWithinItsErrorBound) {
  EXPECT_LE(WorstError(-126.0f, -1.0f, 211), 1.6);
  EXPECT_LE(WorstError(-1.0f, -0x1p-30f, 1009), 1.6);
  EXPECT_LE(WorstError(-0x1p-30f, -0.0f, 20011), 1.6);
}

TEST_P(Exp2, IsExactAtZeroAndWholeNumbers) {
  std::vector<float> whole, expected;
  for (int n = 0; n <= 126; ++n) {
    whole.push_back(static_cast<float>(-n));
    expected.push_back(std::ldexp(1.0f, -n));
  }
  EXPECT_EQ(Exp2Of(whole), expected);
  EXPECT_EQ(Exp2Of({-0.0f}), std::vector<float>{1.0f});
}

TEST_P(Exp2, IsZeroFarBelow) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Exp2Of({-127.0f, -150.0f, -1e10f, -3.4e38f, -inf}), std::vector<float>(5, 0.0f));
  for (const float y : Exp2Of({-126.01f, -126.25f, -126.5f, -126.75f, -126.99f})) {
    EXPECT_GE(y, 0.0f);
    EXPECT_LE(y, 0x1p-126f);
  }
}

TEST_P(Exp2, KeepsNan) {
  for (const float y : Exp2Of(std::vector<float>(64, std::numeric_limits<float>::quiet_NaN()))) {
    EXPECT_TRUE(std::isnan(y));
  }
}

TEST_P(Exp2, NeverRisesAboveOneForXBelowZero) {
  std::vector<float> x;
  for (uint32_t bits = 0x80000000u; bits < 0x80000000u + 0x3f800000u; bits += 40009) {
    x.push_back(std::bit_cast<float>(bits));
  }
  for (const float y : Exp2Of(x)) EXPECT_LE(y, 1.0f);
}

}  // namespace
}  // namespace heed::testing
#endif  // HWY_ONCE
