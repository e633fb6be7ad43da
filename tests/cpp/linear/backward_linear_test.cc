// The way back through a linear map: hand-computed numbers, strides, and factors of 0.
#include "src/linear/backward_linear.h"

#include <cmath>
#include <limits>
#include <vector>

#include "buffer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/linear.h"
#include "random.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::ElementsAre;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class BackwardLinear : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(BackwardLinear);

// x [1, 1, 2, 2], weight [3, 2], d_y [1, 1, 2, 3], and what comes back.
struct Small {
  std::vector<float> x = {1, 2, 3, 4}, weight = {1, 0, 0, 1, 2, -1}, d_y = {1, 0, 2, 0, 1, 3};
  std::vector<float> d_x, d_weight, d_bias;

  void Run() {
    d_x.assign(4, kNan);
    d_weight.assign(6, kNan);
    d_bias.assign(3, kNan);
    LinearBackward(MatrixView<const float>(x.data(), 2, 2),
                   MatrixView<const float>(weight.data(), 3, 2),
                   MatrixView<const float>(d_y.data(), 2, 3),
                   {MatrixView(d_x.data(), 2, 2), MatrixView(d_weight.data(), 3, 2), d_bias},
                   DefaultThreadPool());
  }
};

TEST_P(BackwardLinear, GivesHandComputedNumbers) {
  Small s;
  s.Run();
  EXPECT_THAT(s.d_x, ElementsAre(5, -2, 6, -2));
  EXPECT_THAT(s.d_weight, ElementsAre(1, 2, 3, 4, 11, 16));
  EXPECT_THAT(s.d_bias, ElementsAre(1, 1, 5));
}

TEST_P(BackwardLinear, AFactorOfZeroTakesNothingFromWhatItMeets) {
  Small s;
  s.x[2] = kNan;  // row 1, at which nothing arrives for output 0
  s.Run();
  EXPECT_EQ(s.d_weight[0], 1);
  EXPECT_EQ(s.d_weight[1], 2);
  EXPECT_TRUE(std::isnan(s.d_weight[2]));
  EXPECT_EQ(s.d_weight[3], 4);
  EXPECT_TRUE(std::isnan(s.d_weight[4]));
  EXPECT_EQ(s.d_weight[5], 16);
  s.x = {0, 2, 3, 4};
  s.d_y[0] = std::numeric_limits<float>::infinity();
  s.Run();
  EXPECT_EQ(s.d_weight[0], 0);
  EXPECT_EQ(s.d_weight[1], std::numeric_limits<float>::infinity());
}

// Rows with gaps between them give what packed rows give, bit for bit.
TEST_P(BackwardLinear, StridesDoNotMatter) {
  std::vector<std::vector<float>> weights;
  for (const Layout layout : {Layout::kDense, Layout::kPadded}) {
    Random random(1);
    const auto draw = [&](const Extents& shape) {
      Buffer<float> buffer(shape, layout, kNan);
      buffer.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x = random.Normal(); });
      return buffer;
    };
    const Buffer<float> x = draw({2, 1, 37, 9}), d_y = draw({2, 1, 37, 45});
    const std::vector<float> weight(45 * 9, 1.0f);
    std::vector<float>& d_weight = weights.emplace_back(45 * 9, kNan);
    LinearBackward(x.view(), MatrixView<const float>(weight.data(), 45, 9), d_y.view(),
                   {{}, MatrixView(d_weight.data(), 45, 9), {}}, DefaultThreadPool());
  }
  EXPECT_EQ(weights[0], weights[1]);
}

}  // namespace
}  // namespace heed::testing
