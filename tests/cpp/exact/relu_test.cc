// ReLU attention: positive parts over the number of visible keys.
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

class ReluAttention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(ReluAttention);

TEST_P(ReluAttention, IsSound) { ExpectSoundNormalizer(Normalize::kRelu); }

TEST_P(ReluAttention, GivesHandComputedWeights) {
  EXPECT_THAT(WeightsOf(RowOfScores("relu", {2, -3, 0, 6})), ElementsAre(0.5, 0, 0, 1.5));
  EXPECT_THAT(WeightsOf(RowOfScores("relu", {2, -3, 0, 6}).Param("length_power", 0.5)),
              ElementsAre(1, 0, 0, 3));
}

TEST_P(ReluAttention, CountsOnlyVisibleKeys) {
  RequestBuilder builder = RowOfScores("relu", {2, 5, 4, 6});
  builder.Bytes("keep", {1, 4}, {1, 0, 1, 0});
  EXPECT_THAT(WeightsOf(builder), ElementsAre(1, 0, 2, 0));
}

TEST_P(ReluAttention, ReducesToLinearAttentionForPositiveScores) {
  // Without the sign the weights are linear in the query.
  AttentionCase c = NormalizerCase(Normalize::kRelu, 8, 90);
  for (Buffer<float>* buffer : {&c.q, &c.k}) {
    buffer->ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = std::abs(x); });
  }
  AttentionCase twice = c;
  twice.q.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x *= 2; });
  const Results one = RunAttention(c, {.lse = false});
  const Results two = RunAttention(twice, {.lse = false});
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(two.output(1, 3, i, 5), 2 * one.output(1, 3, i, 5));
  }
}

}  // namespace
}  // namespace heed::testing
