// Attention sinks: a learned logit per head in the denominator.
#include <cmath>
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

using ::testing::DoubleNear;
using ::testing::Pointwise;

class SinkAttention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(SinkAttention);

TEST_P(SinkAttention, GivesHandComputedWeights) {
  RequestBuilder builder = RowOfScores("sink", {1, 2});
  builder.Floats("sinks", {1}, {3});
  const double a = std::exp(1.0), b = std::exp(2.0), sum = a + b + std::exp(3.0);
  EXPECT_THAT(WeightsOf(builder), Pointwise(DoubleNear(1e-7), {a / sum, b / sum}));
}

TEST_P(SinkAttention, MatchesReference) {
  AttentionCase c = NormalizerCase(Normalize::kSoftmax);
  c.sinks = {-40, 0, 3, 60};
  Request request = c.request();
  request.id = "sink";
  request.params.push_back({"return_lse", true});
  const Values expected = RunOracle(request);
  const Values actual = RunByName(request);
  EXPECT_THAT(actual.at("output"), Pointwise(DoubleNear(1e-5), expected.at("output")));
  EXPECT_THAT(actual.at("lse"), Pointwise(DoubleNear(1e-5), expected.at("lse")));
}

TEST_P(SinkAttention, SinksAreRequired) {
  const RequestBuilder builder = RowOfScores("sink", {1, 2});
  EXPECT_THROW(RunByName(builder.request()), Error);
  EXPECT_THROW(RunOracle(builder.request()), Error);
}

TEST_P(SinkAttention, ReducesToSoftmaxWithSinksOfMinusInfinity) {
  AttentionCase c = NormalizerCase(Normalize::kSoftmax);
  const Results plain = RunAttention(c);
  c.sinks.assign(4, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(Bits(plain.output), Bits(RunAttention(c).output));
}

TEST_P(SinkAttention, EmptyRowsAndHiddenNanAreThoseOfSoftmax) {
  ExpectEmptyRowsAreZero(Normalize::kSoftmax);
  ExpectHiddenPoisonDoesNotMatter(Normalize::kSoftmax);
}

}  // namespace
}  // namespace heed::testing
