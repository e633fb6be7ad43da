// Gradients of the short causal convolution against differences of the float64 oracle.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "backward_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class ConvGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(ConvGradient);

struct ConvSizes {
  int64_t batch, len, channels, width;
};

// Signals of both signs, with all that the row takes.
RequestBuilder ConvRequest(const ConvSizes& s, const char* activation) {
  const auto normal = [](int64_t count, uint64_t seed) {
    Random random(seed);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& x : values) x = random.Normal();
    return values;
  };
  RequestBuilder builder("causal_conv");
  builder.Floats("signal", {s.batch, s.len, s.channels}, normal(s.batch * s.len * s.channels, 1))
      .Floats("conv_weight", {s.channels, s.width}, normal(s.channels * s.width, 2))
      .Floats("conv_bias", {s.channels}, normal(s.channels, 3))
      .Floats("conv_state", {s.batch, s.width - 1, s.channels},
              normal(s.batch * (s.width - 1) * s.channels, 4))
      .Param("conv_activation", activation)
      .Param("return_state", true);
  return builder;
}

TEST_P(ConvGradient, MatchesDifferencesOfReference) {
  for (const char* activation : {"none", "silu"}) {
    for (const ConvSizes& s : {ConvSizes{1, 1, 1, 1}, {2, 9, 5, 4}, {1, 3, 17, 7}}) {
      ExpectElementsMatch(ConvRequest(s, activation).request(), kConvGradientMaxError, activation);
    }
  }
}

TEST_P(ConvGradient, MatchesAlongDirectionsForLongSignals) {
  for (const ConvSizes& s : {ConvSizes{2, 700, 35, 4}, {1, 130, 3, 64}}) {
    ExpectDirectionsMatch(ConvRequest(s, "silu").request(), kConvGradientMaxError, "silu");
  }
}

RequestBuilder OneNumber(float signal, float weight) {
  RequestBuilder builder("causal_conv");
  builder.Floats("signal", {1, 1, 1}, {signal})
      .Floats("conv_weight", {1, 1}, {weight})
      .Param("conv_activation", "silu");
  return builder;
}

// Where silu is all but flat or all but a line, and where a sum is beyond float32.
TEST_P(ConvGradient, LargeSumsKeepTheBound) {
  for (const float x : {8.65244f, 15.5369f, 16.6355305f, -8.65244f, -16.6355305f}) {
    Backward backward(OneNumber(x, 1).request());
    const double gate = 1 / (1 + std::exp(-double{x}));
    const double arriving = double{backward.d_results.values(0)[0]};
    const double slope = gate * (1 + double{x} * (1 - gate)) * arriving;
    EXPECT_NEAR(double{backward.gradients.values(0)[0]}, slope,
                kConvGradientMaxError * std::abs(slope))
        << x;
  }
  for (const float sign : {1.0f, -1.0f}) {
    Backward backward(OneNumber(1e38f, sign * 100).request());
    const float arriving = backward.d_results.values(0)[0];
    EXPECT_EQ(backward.gradients.values(0)[0], sign > 0 ? 100 * arriving : 0.0f);
  }
}

TEST_P(ConvGradient, MatchesBeyondLengths) {
  RequestBuilder builder = ConvRequest({4, 6, 3, 4}, "silu");
  builder.Integers("key_lengths", {4}, {0, 2, 5, 6});
  ExpectElementsMatch(builder.request(), kConvGradientMaxError, "lengths 0, 2, 5 and 6");
}

// Blocks of tokens end within a filter, and states reach over several of them.
TEST_P(ConvGradient, MatchesAcrossBlocks) {
  for (const int64_t width : {1, 5, 40}) {
    RequestBuilder builder = ConvRequest({6, 100, 19, width}, "silu");
    builder.Integers("key_lengths", {6}, {0, 1, 32, 33, 64, 100});
    ExpectDirectionsMatch(builder.request(), kConvGradientMaxError, std::to_string(width));
  }
}

// Hidden tokens hold NaN, and NaN arrives at them: bits are those of zeros there.
TEST_P(ConvGradient, TokensBeyondLengthsReachNothing) {
  const auto run = [](float hidden) {
    std::vector<float> signal(70 * 17, 0.5f);
    std::fill(signal.begin() + 37 * 17, signal.end(), hidden);
    RequestBuilder builder("causal_conv");
    builder.Floats("signal", {1, 70, 17}, signal)
        .Floats("conv_weight", {17, 4}, std::vector<float>(17 * 4, 0.25f))
        .Floats("conv_bias", {17}, std::vector<float>(17, 0.1f))
        .Param("conv_activation", "silu")
        .Integers("key_lengths", {1}, {37});
    Backward backward(builder.request());
    std::vector<float>& arriving = backward.d_results.values(0);
    std::fill(arriving.begin() + 37 * 17, arriving.end(), hidden);
    backward.Run(builder.request());
    return backward.gradients.ByName();
  };
  const Values zeros = run(0), gradients = run(kNan);
  EXPECT_EQ(gradients, zeros);
  for (size_t n = 37 * 17; n < 70 * 17; ++n) EXPECT_EQ(gradients.at("signal")[n], 0);
}

TEST_P(ConvGradient, SameBitsForAnyNumberOfThreads) {
  for (const int64_t channels : {70, 150}) {
    ExpectSameGradientsForAnyThreads(ConvRequest({2, 100, channels, 4}, "silu").request(),
                                     "causal_conv");
  }
}

TEST_P(ConvGradient, NanReachesWhatSeesItAndNoOther) {
  std::vector<float> signal(8, 1.0f);
  signal[3] = kNan;
  signal[7] = kNan;  // beyond the length
  RequestBuilder builder("causal_conv");
  builder.Floats("signal", {1, 8, 1}, signal)
      .Floats("conv_weight", {1, 2}, {1, 2})
      .Param("conv_activation", "silu")
      .Integers("key_lengths", {1}, {7});
  Backward backward(builder.request());
  std::vector<size_t> poisoned;
  for (size_t t = 0; t < 8; ++t) {
    if (std::isnan(backward.gradients.values(0)[t])) poisoned.push_back(t);
  }
  // Outputs 3 and 4 hold token 3, and take tokens 2, 3 and 4 with them.
  EXPECT_THAT(poisoned, ::testing::ElementsAre(2, 3, 4));
  EXPECT_EQ(backward.gradients.values(0)[7], 0.0f);
}

}  // namespace
}  // namespace heed::testing
