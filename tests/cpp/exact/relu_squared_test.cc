// Squared ReLU attention.

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

class ReluSquaredAttention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(ReluSquaredAttention);

TEST_P(ReluSquaredAttention, IsSound) { ExpectSoundNormalizer(Normalize::kReluSquared); }

TEST_P(ReluSquaredAttention, GivesHandComputedWeights) {
  EXPECT_THAT(WeightsOf(RowOfScores("relu_squared", {2, -3, 0, 6})), ElementsAre(1, 0, 0, 9));
  EXPECT_THAT(WeightsOf(RowOfScores("relu_squared", {2, -3, 0, 6}).Param("length_power", 0.0)),
              ElementsAre(4, 0, 0, 36));
}

TEST_P(ReluSquaredAttention, ReducesToReluOfTheSquareForOneKey) {
  const auto squared = WeightsOf(RowOfScores("relu_squared", {3}));
  EXPECT_EQ(squared, WeightsOf(RowOfScores("relu", {9})));
}

}  // namespace
}  // namespace heed::testing
