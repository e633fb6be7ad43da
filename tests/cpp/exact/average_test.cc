// Average attention: all visible keys alike.
#include <limits>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "normalizer_checks.h"
#include "request_builder.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::ElementsAre;

class AverageAttention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AverageAttention);

TEST_P(AverageAttention, IsSound) { ExpectSoundNormalizer(Normalize::kAverage); }

TEST_P(AverageAttention, GivesTheMeanOfTheVisibleValues) {
  RequestBuilder builder = RowOfScores("average", {2, 5, -7, 6});
  EXPECT_THAT(WeightsOf(builder), ElementsAre(0.25, 0.25, 0.25, 0.25));
  builder.Bytes("keep", {1, 4}, {1, 0, 1, 0});
  EXPECT_THAT(WeightsOf(builder), ElementsAre(0.5, 0, 0.5, 0));
}

TEST_P(AverageAttention, QueriesAndKeysDoNotMatterNotEvenNan) {
  AttentionCase c = NormalizerCase(Normalize::kAverage);
  const Results clean = RunAttention(c, {.lse = false, .weights = true});
  c.q(0, 1, 5, 3) = c.k(1, 1, 100, 2) = std::numeric_limits<float>::quiet_NaN();
  c.k(0, 0, 7, 0) = -std::numeric_limits<float>::infinity();
  const Results same = RunAttention(c, {.lse = false, .weights = true});
  EXPECT_EQ(Bits(clean.output), Bits(same.output));
  EXPECT_EQ(Bits(clean.weights), Bits(same.weights));
}

TEST_P(AverageAttention, ReducesToSoftmaxWithoutScale) {
  AttentionCase c = NormalizerCase(Normalize::kAverage);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::End();
  const Results average = RunAttention(c, {.lse = false});
  c.scalars.normalize = Normalize::kSoftmax;
  c.scalars.scale = 0.0;
  const Results softmax = RunAttention(c, {.lse = false});
  for (int64_t i = 0; i < 33; ++i) {
    EXPECT_NEAR(average.output(1, 3, i, 5), softmax.output(1, 3, i, 5), 1e-6);
  }
}

}  // namespace
}  // namespace heed::testing
