// xPos against the oracle, its limit, and what its scales mean.
#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/position.h"
#include "position/position_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class Xpos : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Xpos);

std::vector<float> Scaled(const Buffer<float>& x, XposSide side, const XposOptions& options) {
  Buffer<float> y(x.shape(), Layout::kDense, kNanFloat);
  heed::Xpos(x.view(), RopePairing::kInterleaved, side, options, y.view());
  return y.Elements();
}

TEST_P(Xpos, MatchesReference) {
  uint64_t seed = 1;
  for (const Extents& shape : {Extents{1, 1, 1, 2}, {2, 3, 67, 20}, {1, 2, 300, 64}}) {
    for (const std::string pairing : {"half", "interleaved"}) {
      for (const std::string side : {"query", "key"}) {
        PositionCase call("xpos", shape, Layout::kBlhd, ++seed);
        call.Param("pairing", pairing).Param("side", side).Param("center", 150.5);
        call.Param("position_offset", 20.0).Param("scale_base", 100.0).Param("gamma", 0.3);
        call.Param("inverse", seed % 3 == 0);
        const int64_t pairs = shape[3] / 2;
        call.ExpectMatch([&](int64_t b, int64_t h, int64_t i, int64_t d, double) {
          const int64_t other = pairing == "half" ? (d < pairs ? d + pairs : d - pairs) : (d ^ 1);
          const int64_t t = pairing == "half" ? d % pairs : d / 2;
          const double zeta = (static_cast<double>(t) / static_cast<double>(pairs) + 0.3) / 1.3;
          const double grown = std::pow(zeta, (static_cast<double>(i) + 20 - 150.5) / 100);
          const double length = std::hypot(call.x()(b, h, i, d), call.x()(b, h, i, other));
          return kRopeMaxError * length * std::max(grown, 1 / grown);
        });
      }
    }
  }
}

TEST_P(Xpos, ReducesToRopeForALargeGamma) {
  const Buffer<float> x = RandomBuffer({2, 2, 90, 36}, Layout::kDense, 3);
  XposOptions options;
  options.positions.offset = {1000};
  options.gamma = 1e300;
  RopeOptions rope;
  rope.positions.offset = {1000};
  Buffer<float> y(x.shape(), Layout::kDense, kNanFloat);
  Rope(x.view(), RopePairing::kInterleaved, rope, y.view());
  EXPECT_EQ(Scaled(x, XposSide::kQuery, options), y.Elements());
  EXPECT_EQ(Scaled(x, XposSide::kKey, options), y.Elements());
}

// Pair t of q_i . k_j carries zeta_t^((i - j) / scale_base), whatever the center.
TEST_P(Xpos, ProductsDecayWithTheDistanceOnly) {
  const int64_t len = 100, dim = 4;
  Buffer<float> ones({1, 1, len, dim}, Layout::kDense, 1);
  for (const double center : {0.0, 50.0}) {
    XposOptions options;
    options.center = center;
    options.scale_base = 20;
    const std::vector<float> q = Scaled(ones, XposSide::kQuery, options);
    const std::vector<float> k = Scaled(ones, XposSide::kKey, options);
    for (const auto& [i, j] : {std::pair(99, 79), std::pair(60, 40), std::pair(20, 0)}) {
      // Pair 0 has zeta 0.4 / 1.4 and frequency 1; (1, 1).(1, 1) rotated by 20 is 2 cos 20.
      const double product = static_cast<double>(q[i * dim]) * k[j * dim] +
                             static_cast<double>(q[i * dim + 1]) * k[j * dim + 1];
      EXPECT_NEAR(product, 2 * std::cos(20.0) * 0.4 / 1.4, 1e-6);
    }
  }
}

// By hand: dim 2 has one pair, frequency 1, zeta = gamma / (1 + gamma) = 1/2 for gamma 1. Position
// 2 of scale_base 1: (1, 0) becomes (cos 2, sin 2) / 4 as a query and times 4 as a key.
TEST_P(Xpos, HandComputedPair) {
  Buffer<float> x({1, 1, 1, 2}, Layout::kDense, 0);
  x(0, 0, 0, 0) = 1;
  XposOptions options;
  options.positions.offset = {2};
  options.gamma = 1;
  options.scale_base = 1;
  const std::vector<float> query = Scaled(x, XposSide::kQuery, options);
  const std::vector<float> key = Scaled(x, XposSide::kKey, options);
  EXPECT_NEAR(query[0], -0.4161468365 / 4, 1e-7);
  EXPECT_NEAR(query[1], 0.9092974268 / 4, 1e-7);
  EXPECT_NEAR(key[0], -0.4161468365 * 4, 1e-6);
  EXPECT_NEAR(key[1], 0.9092974268 * 4, 1e-6);
}

TEST_P(Xpos, InverseUndoesIt) {
  const Buffer<float> x = RandomBuffer({1, 2, 80, 16}, Layout::kDense, 3);
  XposOptions options;
  options.center = 40;
  Buffer<float> y(x.shape(), Layout::kDense, kNanFloat);
  heed::Xpos(x.view(), RopePairing::kInterleaved, XposSide::kKey, options, y.view());
  options.inverse = true;
  EXPECT_THAT(Scaled(y, XposSide::kKey, options),
              ::testing::Pointwise(::testing::FloatNear(3e-6f), x.Elements()));
}

TEST(XposErrors, ScalesThatLeaveFloatAreRefused) {
  const Buffer<float> x = RandomBuffer({1, 1, 2, 8}, Layout::kDense, 3);
  XposOptions options;
  options.positions.offset = {1000000};
  EXPECT_THROW(Scaled(x, XposSide::kQuery, options), Error);
  options.center = 1000000;
  for (const float y : Scaled(x, XposSide::kQuery, options)) EXPECT_TRUE(std::isfinite(y));
  options.scale_base = 0;
  EXPECT_THROW(Scaled(x, XposSide::kQuery, options), Error);
}

TEST(XposErrors, SideIsNeeded) {
  PositionCase call("xpos", {1, 1, 2, 4}, Layout::kDense, 1);
  call.Param("pairing", std::string("half"));
  EXPECT_THROW(call.Run(), Error);
  EXPECT_THROW(call.Oracle(), Error);
}

}  // namespace
}  // namespace heed::testing
