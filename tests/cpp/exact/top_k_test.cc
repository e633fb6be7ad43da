// Top-k attention: softmax over the best keys.
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
using ::testing::ElementsAre;
using ::testing::Pointwise;

class TopKAttention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(TopKAttention);

TEST_P(TopKAttention, IsSound) { ExpectSoundNormalizer(Normalize::kTopK); }

TEST_P(TopKAttention, GivesHandComputedWeights) {
  const double a = std::exp(0.0), b = std::exp(-1.0);
  EXPECT_THAT(WeightsOf(RowOfScores("top_k", {2, 7, -3, 6}).Param("top_k", 2.0)),
              Pointwise(DoubleNear(1e-7), {0.0, a / (a + b), 0.0, b / (a + b)}));
}

TEST_P(TopKAttention, EqualScoresGoToTheLowerKeys) {
  EXPECT_THAT(
      WeightsOf(RowOfScores("top_k", {1, 2, 1, 2, 1, 1}).Param("top_k", 4.0)),
      ElementsAre(::testing::Gt(0), ::testing::Gt(0), ::testing::Gt(0), ::testing::Gt(0), 0, 0));
  EXPECT_THAT(WeightsOf(RowOfScores("top_k", {0, -0.0f, 0, -0.0f}).Param("top_k", 2.0)),
              ElementsAre(0.5, 0.5, 0, 0));
}

TEST_P(TopKAttention, ChoosesExactlyKOfManyTiedKeys) {
  for (const int64_t k : {1, 7, 255, 256, 257, 299}) {
    AttentionCase c = NormalizerCase(Normalize::kTopK);
    c.scalars.top_k = k;
    ExpectMatchesReference(c);
    const Results r = RunAttention(c, {.lse = false, .weights = true});
    int64_t chosen = 0;
    for (int64_t j = 0; j < 300; ++j) chosen += r.weights(0, 3, 9, j) > 0 ? 1 : 0;
    EXPECT_EQ(chosen, k);
  }
}

TEST_P(TopKAttention, ReducesToSoftmaxForManyAndToHardForOne) {
  AttentionCase c = NormalizerCase(Normalize::kTopK);
  c.scalars.top_k = 300;
  const Results all = RunAttention(c);
  c.scalars.normalize = Normalize::kSoftmax;
  const Results softmax = RunAttention(c);
  for (int64_t i = 0; i < 33; ++i) {
    EXPECT_NEAR(all.output(1, 3, i, 5), softmax.output(1, 3, i, 5), 4e-6);
    EXPECT_NEAR(all.lse(1, 3, i, 0), softmax.lse(1, 3, i, 0), 4e-6);
  }
  c.scalars.normalize = Normalize::kTopK;
  c.scalars.top_k = 1;
  const Results one = RunAttention(c, {.lse = false});
  c.scalars.normalize = Normalize::kHard;
  EXPECT_EQ(Bits(one.output), Bits(RunAttention(c, {.lse = false}).output));
}

}  // namespace
}  // namespace heed::testing
