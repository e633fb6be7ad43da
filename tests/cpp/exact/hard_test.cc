// Hard attention: the best key alone.
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

class HardAttention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(HardAttention);

TEST_P(HardAttention, IsSound) { ExpectSoundNormalizer(Normalize::kHard); }

TEST_P(HardAttention, TakesTheFirstOfTheLargestScores) {
  EXPECT_THAT(WeightsOf(RowOfScores("hard", {2, 7, -3, 7})), ElementsAre(0, 1, 0, 0));
}

TEST_P(HardAttention, GivesTheBitsOfTheChosenValue) {
  const AttentionCase c = NormalizerCase(Normalize::kHard);
  const Results r = RunAttention(c, {.lse = false, .weights = true});
  for (int64_t i = 0; i < 33; ++i) {
    int64_t chosen = -1;
    for (int64_t j = 0; j < 300; ++j) {
      if (r.weights(1, 2, i, j) != 0) chosen = j;
    }
    ASSERT_GE(chosen, 0);
    for (int64_t d = 0; d < 9; ++d) EXPECT_EQ(r.output(1, 2, i, d), c.v(1, 1, chosen, d));
  }
}

TEST_P(HardAttention, NanInAKeyThatIsNotChosenStaysOut) {
  RequestBuilder builder("hard");
  builder.Floats("q", {1, 1, 1, 1}, {1})
      .Floats("k", {1, 1, 2, 1}, {1, 2})
      .Floats("v", {1, 1, 2, 1}, {std::numeric_limits<float>::quiet_NaN(), 5});
  EXPECT_THAT(RunByName(builder.request()).at("output"), ElementsAre(5));
}

TEST_P(HardAttention, ReducesToSoftmaxOfALargeScale) {
  AttentionCase c = NormalizerCase(Normalize::kHard, 20, 150);
  c.k = MakeCase(c.sizes, 5).k;  // no equal scores
  const Results hard = RunAttention(c, {.lse = false});
  c.scalars.normalize = Normalize::kSoftmax;
  c.scalars.scale = 3e4;
  const Results softmax = RunAttention(c, {.lse = false});
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(hard.output(0, 1, i, 3), softmax.output(0, 1, i, 3));
}

}  // namespace
}  // namespace heed::testing
