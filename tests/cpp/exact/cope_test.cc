// Contextual positions: counted by gates, from the last visible key backwards.
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

class CopeAttention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(CopeAttention);

TEST_P(CopeAttention, IsSound) { ExpectSoundNormalizer(Normalize::kCope); }

// Scores 0, so that every gate is a half; positions 1.5, 1, 0.5.
RequestBuilder ThreeKeys() {
  RequestBuilder builder("cope");
  builder.Floats("q", {1, 1, 1, 1}, {2})
      .Floats("k", {1, 1, 3, 1}, {7, 8, 9})
      .Floats("v", {1, 1, 3, 1}, {0, 0, 0})
      .Param("scale", 0.0)
      .Param("return_weights", true);
  return builder;
}

TEST_P(CopeAttention, MixesTheLogitsOfNeighbouringPositions) {
  // q.e = 0, 2, 6 at positions 0, 1, 2: logits 4, 2, 1.
  RequestBuilder builder = ThreeKeys();
  builder.Floats("cope_table", {3, 1}, {0, 1, 3});
  const double a = std::exp(4.0), b = std::exp(2.0), c = std::exp(1.0), sum = a + b + c;
  EXPECT_THAT(RunByName(builder.request()).at("weights"),
              Pointwise(DoubleNear(3e-7), {a / sum, b / sum, c / sum}));
}

TEST_P(CopeAttention, BeyondTheLastPositionIsTheLast) {
  RequestBuilder builder = ThreeKeys();
  builder.Floats("cope_table", {2, 1}, {0, 1});
  const double a = std::exp(2.0), c = std::exp(1.0), sum = 2 * a + c;
  EXPECT_THAT(RunByName(builder.request()).at("weights"),
              Pointwise(DoubleNear(3e-7), {a / sum, a / sum, c / sum}));
}

TEST_P(CopeAttention, ReducesToSoftmaxWithATableOfZeros) {
  AttentionCase c = NormalizerCase(Normalize::kCope);
  c.tensors.at("cope_table").buffer.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) {
    x = 0;
  });
  const Results cope = RunAttention(c);
  c.tensors.clear();
  c.scalars.normalize = Normalize::kSoftmax;
  const Results softmax = RunAttention(c);
  for (int64_t i = 0; i < 33; ++i) {
    EXPECT_NEAR(cope.output(1, 3, i, 5), softmax.output(1, 3, i, 5), 4e-6);
    EXPECT_NEAR(cope.lse(1, 3, i, 0), softmax.lse(1, 3, i, 0), 4e-6);
  }
}

TEST_P(CopeAttention, NeedsATableThatFits) {
  EXPECT_THROW(RunByName(ThreeKeys().request()), Error);
  RequestBuilder wide = ThreeKeys();
  wide.Floats("cope_table", {2, 2}, {0, 1, 2, 3});
  EXPECT_THROW(RunByName(wide.request()), Error);
}

}  // namespace
}  // namespace heed::testing
