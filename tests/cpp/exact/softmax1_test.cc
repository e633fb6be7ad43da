// Softmax off by one.
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

class Softmax1Attention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Softmax1Attention);

TEST_P(Softmax1Attention, IsSound) { ExpectSoundNormalizer(Normalize::kSoftmax1); }

TEST_P(Softmax1Attention, GivesHandComputedWeights) {
  const double a = std::exp(1.0), b = std::exp(2.0), sum = 1 + a + b;
  EXPECT_THAT(WeightsOf(RowOfScores("softmax1", {1, 2})),
              Pointwise(DoubleNear(1e-7), {a / sum, b / sum}));
}

TEST_P(Softmax1Attention, ReducesToSinksOfZero) {
  AttentionCase c = NormalizerCase(Normalize::kSoftmax1);
  const Results off_by_one = RunAttention(c);
  c.scalars.normalize = Normalize::kSoftmax;
  c.sinks = {0, 0, 0, 0};
  const Results sinks = RunAttention(c);
  EXPECT_EQ(Bits(off_by_one.output), Bits(sinks.output));
  EXPECT_EQ(Bits(off_by_one.lse), Bits(sinks.lse));
}

}  // namespace
}  // namespace heed::testing
