// Stick-breaking attention: from the last visible key backwards.
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

using ::testing::ElementsAre;

class StickBreakingAttention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(StickBreakingAttention);

TEST_P(StickBreakingAttention, IsSound) { ExpectSoundNormalizer(Normalize::kStickBreaking); }

TEST_P(StickBreakingAttention, EqualSharesHalveWhatIsLeft) {
  EXPECT_THAT(WeightsOf(RowOfScores("stick_breaking", {0, 0, 0})), ElementsAre(0.125, 0.25, 0.5));
}

TEST_P(StickBreakingAttention, HiddenKeysTakeNothing) {
  RequestBuilder builder = RowOfScores("stick_breaking", {0, 0, 0, 0});
  builder.Bytes("keep", {1, 4}, {1, 0, 1, 0});
  EXPECT_THAT(WeightsOf(builder), ElementsAre(0.25, 0, 0.5, 0));
}

TEST_P(StickBreakingAttention, LongRowsOfSmallSharesKeepTheirPrecision) {
  // Shares of 2^-10 each: what is left after n keys is (1 - 2^-10)^n.
  const double share = 0x1p-10;
  const float score = static_cast<float>(std::log(share / (1 - share)));
  AttentionCase c = NormalizerCase(Normalize::kStickBreaking, 1, 4000, 1);
  c.q.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = 1; });
  c.k.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x = score; });
  c.scalars.scale = 1.0;
  const Results r = RunAttention(c, {.lse = false, .weights = true});
  for (const int64_t n : {0, 1, 100, 1000, 3999}) {
    const double expected = share * std::pow(1 - share, static_cast<double>(n));
    EXPECT_NEAR(r.weights(0, 0, 0, 3999 - n) / expected, 1, 5e-6) << n;
  }
}

TEST_P(StickBreakingAttention, ABiasCountsOnceForEveryRunOfKeys) {
  // Keys far apart are scored in runs; a bias once reached earlier runs again.
  AttentionCase c = NormalizerCase(Normalize::kStickBreaking);
  Random random(11);
  c.keep = MakeKeep({1, 1, 1, 300}, random, 0.0);
  for (const int64_t j : {3, 90, 91, 200, 299}) c.keep(0, 0, 0, j) = 1;
  c.bias = MakeBias({2, 4, 33, 300}, random);
  ExpectMatchesReference(c);
}

TEST_P(StickBreakingAttention, ReducesToTheLastKeyForLargeScores) {
  EXPECT_THAT(WeightsOf(RowOfScores("stick_breaking", {50, 60, 120})), ElementsAre(0, 0, 1));
}

}  // namespace
}  // namespace heed::testing
