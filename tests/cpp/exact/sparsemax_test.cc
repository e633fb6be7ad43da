// Sparsemax: numbers from outside, exact sums, limits.
#include <algorithm>

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

class SparsemaxAttention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(SparsemaxAttention);

TEST_P(SparsemaxAttention, IsSound) { ExpectSoundNormalizer(Normalize::kSparsemax); }

TEST_P(SparsemaxAttention, GivesTheNumbersOfTheEntmaxPackage) {
  // deep-spin/entmax, README: sparsemax([-2, 0, 0.5]).
  EXPECT_THAT(WeightsOf(RowOfScores("sparsemax", {-2, 0, 0.5f})),
              Pointwise(DoubleNear(1e-7), {0.0, 0.25, 0.75}));
}

TEST_P(SparsemaxAttention, OfTwoKeysIsTheHardSigmoid) {
  // Martins & Astudillo 2016, section 2.2: (t + 1) / 2 between -1 and 1.
  for (const float t : {-2.0f, -1.0f, -0.5f, 0.0f, 0.25f, 1.0f, 3.0f}) {
    const double expected = std::clamp((t + 1.0) / 2, 0.0, 1.0);
    EXPECT_NEAR(WeightsOf(RowOfScores("sparsemax", {t, 0}))[0], expected, 1e-7) << t;
  }
}

TEST_P(SparsemaxAttention, RowsSumToOne) {
  for (const double scale : {1e-3, 0.1, 1.0, 10.0}) {
    AttentionCase c = NormalizerCase(Normalize::kSparsemax, 9, 2000);
    c.scalars.scale = scale;
    const Results r = RunAttention(c, {.lse = false, .weights = true});
    for (int64_t i = 0; i < 9; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < 2000; ++j) sum += r.weights(1, 2, i, j);
      EXPECT_NEAR(sum, 1, 2e-6) << scale;
    }
  }
}

TEST_P(SparsemaxAttention, ReducesToAverageForSmallAndToHardForLargeScale) {
  AttentionCase c = NormalizerCase(Normalize::kSparsemax, 9, 100);
  c.scalars.scale = 0.0;
  const Results flat = RunAttention(c, {.lse = false, .weights = true});
  for (int64_t j = 0; j < 100; ++j) EXPECT_FLOAT_EQ(flat.weights(0, 1, 4, j), 0.01f);
  c.scalars.scale = 1e4;
  const Results peaked = RunAttention(c, {.lse = false});
  c.scalars.normalize = Normalize::kHard;
  const Results hard = RunAttention(c, {.lse = false});
  for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(peaked.output(0, 1, i, 2), hard.output(0, 1, i, 2));
}

}  // namespace
}  // namespace heed::testing
