// The sinusoidal code against the oracle, against identities, and against published numbers.
#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/position.h"
#include "position/position_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

class Sinusoidal : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Sinusoidal);

std::vector<float> Table(int64_t len, int64_t dim, const SinusoidalOptions& options) {
  Buffer<float> table({1, 1, len, dim}, Layout::kDense, kNanFloat);
  AddSinusoidal({}, options, table.view());
  return table.Elements();
}

TEST_P(Sinusoidal, MatchesReference) {
  uint64_t seed = 1;
  for (const Extents& shape :
       {Extents{1, 1, 1, 1}, {2, 1, 70, 7}, {1, 3, 130, 64}, {3, 1, 9, 2}, {1, 1, 5, 3}}) {
    for (const std::string layout : {"interleaved", "concatenated"}) {
      for (const std::string spacing : {"open", "closed"}) {
        PositionCase call("sinusoidal", shape, Layout::kPadded, ++seed);
        call.Param("code_layout", layout).Param("spacing", spacing);
        call.Param("position_offset", static_cast<double>(seed * 1001));
        call.ExpectMatch([](int64_t, int64_t, int64_t, int64_t, double wanted) {
          return kPositionCodeMaxError * std::max(1.0, std::abs(wanted));
        });
      }
    }
  }
}

TEST_P(Sinusoidal, PositionsPerBatchMatchReference) {
  PositionCase call("sinusoidal", {3, 1, 20, 10}, Layout::kDense, 2);
  std::vector<int32_t> rows;
  for (int i = 0; i < 60; ++i) rows.push_back((i * 7919) % 3001 - 1000);
  call.Positions(rows, true).ExpectMatch([](int64_t, int64_t, int64_t, int64_t, double wanted) {
    return kPositionCodeMaxError * std::max(1.0, std::abs(wanted));
  });
}

TEST_P(Sinusoidal, AbsentXIsTheTableAlone) {
  const Buffer<float> zeros({1, 1, 40, 12}, Layout::kDense, 0);
  Buffer<float> sum(zeros.shape(), Layout::kDense, kNanFloat);
  AddSinusoidal(zeros.view(), {}, sum.view());
  EXPECT_EQ(Table(40, 12, {}), sum.Elements());
}

// P_i . P_j = sum_t cos((i - j) f_t): the reason for the code, section 3.5 of the paper.
TEST_P(Sinusoidal, ProductsDependOnTheDistanceOnly) {
  const int64_t dim = 64;
  const std::vector<float> table = Table(200, dim, {});
  for (const auto& [i, j] : {std::pair(30, 13), std::pair(199, 182), std::pair(17, 0)}) {
    double product = 0, expected = 0;
    for (int64_t d = 0; d < dim; ++d) {
      product += static_cast<double>(table[i * dim + d]) * table[j * dim + d];
    }
    for (int64_t t = 0; t < dim / 2; ++t) {
      expected += std::cos(17 * std::pow(10000.0, -2.0 * static_cast<double>(t) / dim));
    }
    EXPECT_NEAR(product, expected, 3e-6);
  }
}

TEST_P(Sinusoidal, StaysRightAtAMillion) {
  SinusoidalOptions options;
  options.positions.offset = {1000003};
  const std::vector<float> row = Table(1, 128, options);
  for (int64_t t = 0; t < 64; ++t) {
    const long double angle =
        1000003 * std::pow(10000.0L, -2.0L * static_cast<long double>(t) / 128);
    EXPECT_NEAR(row[2 * t], static_cast<double>(std::sin(angle)), kPositionCodeMaxError);
    EXPECT_NEAR(row[2 * t + 1], static_cast<double>(std::cos(angle)), kPositionCodeMaxError);
  }
}

// keras-hub sine_position_encoding_test.py: dim 6, positions 0 and 3.
TEST_P(Sinusoidal, PublishedByKerasHub) {
  const std::vector<float> table = Table(4, 6, {});
  EXPECT_THAT(std::vector<float>(table.begin(), table.begin() + 6),
              Pointwise(FloatNear(1e-6f), std::vector<float>{0, 1, 0, 1, 0, 1}));
  EXPECT_THAT(std::vector<float>(table.begin() + 18, table.end()),
              Pointwise(FloatNear(1e-5f), std::vector<float>{0.14112f, -0.98999f, 0.13879f,
                                                             0.99032f, 0.00646f, 0.99997f}));
}

// flax gemma positional_embeddings_test.py: sines, cosines, a padded column, added to ones; base
// 100, position 3; the last frequency is 1 / base. Their float32 frequency is off by 3e-7.
TEST_P(Sinusoidal, PublishedByFlax) {
  const Buffer<float> ones({1, 1, 1, 5}, Layout::kDense, 1);
  Buffer<float> y(ones.shape(), Layout::kDense, kNanFloat);
  SinusoidalOptions options = {.positions = {.offset = {3}},
                               .layout = SinusoidalLayout::kConcatenated,
                               .spacing = SinusoidalSpacing::kClosed,
                               .base = 100};
  AddSinusoidal(ones.view(), options, y.view());
  EXPECT_THAT(y.Elements(),
              Pointwise(FloatNear(1.2e-6f),
                        std::vector<float>{1.1411201f, 1.0299965f, 0.0100075f, 1.99955f, 1.0f}));
}

TEST_P(Sinusoidal, InPlaceEqualsApart) {
  Buffer<float> x = RandomBuffer({2, 1, 100, 33}, Layout::kPadded, 3);
  Buffer<float> y(x.shape(), Layout::kDense, kNanFloat);
  AddSinusoidal(x.view(), {}, y.view());
  AddSinusoidal(x.view(), {}, x.view());
  EXPECT_EQ(x.Elements(), y.Elements());
}

TEST(SinusoidalErrors, AreNamed) {
  EXPECT_THROW(Table(2, 4, {.base = 1}), Error);
  EXPECT_THROW(Table(2, 4, {.positions = {.offset = {1, 2}}}), Error);
  EXPECT_TRUE(Table(0, 4, {}).empty());
  EXPECT_TRUE(Table(3, 0, {}).empty());
}

}  // namespace
}  // namespace heed::testing
