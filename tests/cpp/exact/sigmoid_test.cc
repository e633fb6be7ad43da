// Sigmoid attention: each key by itself, with a bias for the length.
#include <cmath>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "normalizer_checks.h"
#include "request_builder.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

class SigmoidAttention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(SigmoidAttention);

TEST_P(SigmoidAttention, IsSound) { ExpectSoundNormalizer(Normalize::kSigmoid); }

TEST_P(SigmoidAttention, EqualKeysGetAboutOneOverTheirNumberByDefault) {
  // sigmoid(0 - log 4) = 1 / (1 + 4), as the paper's bias wants it.
  EXPECT_THAT(WeightsOf(RowOfScores("sigmoid", {0, 0, 0, 0})),
              Pointwise(DoubleNear(1e-7), {0.2, 0.2, 0.2, 0.2}));
}

TEST_P(SigmoidAttention, GivesHandComputedWeights) {
  const double e = std::exp(1.0);
  EXPECT_THAT(WeightsOf(RowOfScores("sigmoid", {0, 1, -1}).Param("sigmoid_bias", 0.0)),
              Pointwise(DoubleNear(1e-7), {0.5, e / (1 + e), 1 / (1 + e)}));
}

TEST_P(SigmoidAttention, KeysDoNotCompete) {
  const auto few = WeightsOf(RowOfScores("sigmoid", {0.5f, 2}).Param("sigmoid_bias", -1.0));
  const auto more = WeightsOf(RowOfScores("sigmoid", {0.5f, 2, 30}).Param("sigmoid_bias", -1.0));
  EXPECT_EQ(few[0], more[0]);
  EXPECT_EQ(few[1], more[1]);
}

TEST_P(SigmoidAttention, ReducesToUnnormalisedSoftmaxForALowBias) {
  // sigmoid(s + b) -> e^b e^s as b -> -inf.
  const auto weights = WeightsOf(RowOfScores("sigmoid", {0, 1, 3}).Param("sigmoid_bias", -30.0));
  for (size_t j = 0; j < 3; ++j) {
    const double s[] = {0, 1, 3};
    EXPECT_NEAR(weights[j] / std::exp(s[j] - 30), 1, 1e-5);
  }
}

}  // namespace
}  // namespace heed::testing
