// Entmax 1.5: numbers from outside, sums, limits.

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

class Entmax15Attention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Entmax15Attention);

TEST_P(Entmax15Attention, IsSound) { ExpectSoundNormalizer(Normalize::kEntmax15); }

TEST_P(Entmax15Attention, GivesTheNumbersOfTheEntmaxPackage) {
  // deep-spin/entmax, README: entmax15([-2, 0, 0.5]).
  EXPECT_THAT(WeightsOf(RowOfScores("entmax15", {-2, 0, 0.5f})),
              Pointwise(DoubleNear(5e-5), {0.0, 0.3260, 0.6740}));
}

TEST_P(Entmax15Attention, RowsSumToOne) {
  for (const double scale : {1e-3, 0.1, 1.0, 10.0}) {
    AttentionCase c = NormalizerCase(Normalize::kEntmax15, 9, 2000);
    c.scalars.scale = scale;
    const Results r = RunAttention(c, {.lse = false, .weights = true});
    for (int64_t i = 0; i < 9; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < 2000; ++j) sum += r.weights(1, 2, i, j);
      EXPECT_NEAR(sum, 1, 2e-6) << scale;
    }
  }
}

TEST_P(Entmax15Attention, ReducesToAverageForSmallAndToHardForLargeScale) {
  AttentionCase c = NormalizerCase(Normalize::kEntmax15, 9, 100);
  c.scalars.scale = 0.0;
  const Results flat = RunAttention(c, {.lse = false, .weights = true});
  for (int64_t j = 0; j < 100; ++j) EXPECT_NEAR(flat.weights(0, 1, 4, j), 0.01, 1e-8);
  c.scalars.scale = 1e4;
  const Results peaked = RunAttention(c, {.lse = false});
  c.scalars.normalize = Normalize::kHard;
  const Results hard = RunAttention(c, {.lse = false});
  for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(peaked.output(0, 1, i, 2), hard.output(0, 1, i, 2));
}

}  // namespace
}  // namespace heed::testing
