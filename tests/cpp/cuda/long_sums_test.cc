// Long sums on the device path, of terms of one sign, whose roundings all go one way.
#include <vector>

#include "device_request.h"
#include "gtest/gtest.h"
#include "heed/graph.h"
#include "heed/low_rank.h"

namespace heed::testing {
namespace {

constexpr int64_t kTokens = 20000;
constexpr float kValue = 0.1f;

class DeviceLongSums : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }
  const std::vector<float> ones_ = std::vector<float>(kTokens, 1.0f);
  const std::vector<float> values_ = std::vector<float>(kTokens, kValue);
};

double FirstOutput(const RequestBuilder& r) {
  return static_cast<double>(RunOnDevice(r.request()).at("output")[0]);
}

// The sum of all values, and their mean.
constexpr double kSum = static_cast<double>(kValue) * kTokens;
constexpr double kMean = static_cast<double>(kValue);

TEST_F(DeviceLongSums, OfProductsOfMatrices) {
  // Sums of the first round up, those of the second down.
  for (const float value : {kValue, 0.588169038f}) {
    RequestBuilder r("linformer");
    r.Floats("q", {1, 1, 1, 1}, {1}).Floats("k", {1, 1, kTokens, 1}, ones_);
    r.Floats("v", {1, 1, kTokens, 1}, std::vector<float>(kTokens, value));
    r.Floats("key_projection", {1, kTokens}, ones_);
    const double sum = static_cast<double>(value) * kTokens;
    EXPECT_NEAR(FirstOutput(r) / sum, 1, kLowRankMaxError) << value;
  }
}

TEST_F(DeviceLongSums, OfTheTokensOfAConvolution) {
  RequestBuilder r("memory_compressed");
  r.Floats("q", {1, 1, 1, 1}, {1}).Floats("k", {1, 1, kTokens, 1}, ones_);
  r.Floats("v", {1, 1, kTokens, 1}, values_).Param("compression", double{kTokens});
  r.Floats("value_conv", {1, 1, 1, kTokens}, ones_);
  EXPECT_NEAR(FirstOutput(r) / kSum, 1, kLowRankMaxError);
}

TEST_F(DeviceLongSums, OfMixedWeightsAndValues) {
  RequestBuilder r("talking_heads");
  r.Floats("q", {1, 1, 1, 1}, {0}).Floats("k", {1, 1, kTokens, 1}, ones_);
  r.Floats("v", {1, 1, kTokens, 1}, values_).Floats("mix_weights", {1, 1}, {1});
  EXPECT_NEAR(FirstOutput(r) / kMean, 1, kAttentionMaxError);
}

TEST_F(DeviceLongSums, OfTheEdgesOfANode) {
  RequestBuilder r("graph");
  r.Floats("q", {1, 1, 1, 1}, {0}).Floats("k", {1, 1, 1, 1}, {0});
  r.Floats("v", {1, 1, 1, 1}, {kValue}).Floats("score_weight", {1, 2}, {1, 1});
  r.Integers("edges", {kTokens, 2}, std::vector<int32_t>(2 * kTokens, 0));
  EXPECT_NEAR(FirstOutput(r) / kMean, 1, kGraphMaxError);
}

}  // namespace
}  // namespace heed::testing
