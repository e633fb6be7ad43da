// Efficient attention: against the oracle, its limits, and numbers from its definition.
#include <cmath>
#include <limits>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/cost.h"
#include "heed/low_rank.h"
#include "low_rank_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Efficient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Efficient);

TEST_P(Efficient, MatchesReference) {
  for (const LowRankSizes& s : ManyLowRankSizes()) {
    RequestBuilder builder = Tokens(s).Request("efficient");
    builder.Param("return_weights", true);
    ExpectMatchesLowRankOracle(builder.request(), 5, "kv_len " + std::to_string(s.kv_len));
  }
}

TEST_P(Efficient, LongSequencesMatchReferenceBlockAfterBlock) {
  const LowRankSizes many_keys{
      .batch = 2, .q_len = 33, .kv_len = 4100, .head_dim = 3, .head_dim_v = 5};
  const LowRankSizes many_queries{.q_len = 1030, .kv_len = 70, .head_dim = 3, .head_dim_v = 5};
  ExpectMatchesLowRankOracle(Tokens(many_queries).Request("efficient").request(), 5, "queries");
  RequestBuilder builder = Tokens(many_keys).Request("efficient");
  ExpectMatchesLowRankOracle(builder.request(), 5, "keys");
  builder.Integers("key_lengths", {2}, {4099, 0});
  ExpectMatchesLowRankOracle(builder.request(), 5, "lengths");
}

TEST_P(Efficient, LargeQueriesAndKeysMatchReference) {
  Tokens tokens(LowRankSizes{});
  for (float& x : tokens.q) x *= 40;
  for (float& x : tokens.k) x *= 40;
  ExpectMatchesLowRankOracle(tokens.Request("efficient").request(), 5, "large");
}

TEST_P(Efficient, LengthsMatchReferenceAndPaddingMayBeAnything) {
  const LowRankSizes s{.batch = 3};
  Tokens tokens(s);
  RequestBuilder clean = tokens.Request("efficient");
  for (int64_t h = 0; h < 2; ++h) {
    tokens.Key(0, h, 41, 3) = kNan;
    tokens.Value(0, h, 69, 0) = kInfinity;
    tokens.Value(1, h, 0, 0) = kNan;
  }
  RequestBuilder poisoned = tokens.Request("efficient");
  for (RequestBuilder* builder : {&clean, &poisoned}) {
    builder->Integers("key_lengths", {3}, {41, 0, 70}).Param("return_weights", true);
  }
  ExpectMatchesLowRankOracle(clean.request(), 5, "lengths");
  const Values values = RunByName(clean.request());
  EXPECT_EQ(RunByName(poisoned.request()), values);
  const size_t rows = 4 * 33;  // of a batch entry
  for (size_t n = rows * 9; n < 2 * rows * 9; ++n) EXPECT_EQ(values.at("output")[n], 0.0);
  for (size_t n = rows * 70; n < 2 * rows * 70; ++n) EXPECT_EQ(values.at("weights")[n], 0.0);
}

TEST_P(Efficient, ReducesToScaledDotProductWithOneFeature) {
  // One feature: every query is 1 after its softmax, and the tokens' shares are those of exp(k).
  const LowRankSizes s{.head_dim = 1};
  RequestBuilder efficient = Tokens(s).Request("efficient");
  Tokens ones(s);
  for (float& x : ones.q) x = 1;
  RequestBuilder plain = ones.Request("scaled_dot_product");
  plain.Param("scale", 1.0);
  ExpectAllNear(RunByName(efficient.request()).at("output"),
                RunByName(plain.request()).at("output"), 5 * kLowRankMaxError);
}

TEST_P(Efficient, QueryWithOneFeatureFarAheadAttendsAsItsUnitVector) {
  Tokens tokens(LowRankSizes{});
  Tokens units = tokens;
  for (size_t n = 0; n < tokens.q.size(); ++n) {
    const bool ahead = n % 16 == n / 16 % 16;
    tokens.q[n] = ahead ? 500.0f : tokens.q[n];
    units.q[n] = ahead ? 1.0f : 0.0f;
  }
  RequestBuilder efficient = tokens.Request("efficient");
  RequestBuilder plain = units.Request("scaled_dot_product");
  plain.Param("scale", 1.0);
  ExpectAllNear(RunByName(efficient.request()).at("output"),
                RunByName(plain.request()).at("output"), 5 * kLowRankMaxError);
}

TEST_P(Efficient, GivesTheNumbersOfItsDefinition) {
  // Features 2/3 and 1/3; tokens (1/4, 3/4) and (3/4, 1/4): weights 5/12 and 7/12.
  const float three = std::log(3.0f);
  RequestBuilder builder("efficient");
  builder.Floats("q", {1, 1, 1, 2}, {std::log(2.0f), 0})
      .Floats("k", {1, 1, 2, 2}, {0, three, three, 0})
      .Floats("v", {1, 1, 2, 1}, {12, 24})
      .Param("return_weights", true);
  const Values values = RunByName(builder.request());
  ExpectAllNear(values.at("weights"), {5 / 12.0, 7 / 12.0}, 2e-7);
  ExpectAllNear(values.at("output"), {19}, 1e-5);
}

TEST_P(Efficient, KeyOfMinusInfinityIsLeftOutOfItsFeature) {
  Tokens tokens(LowRankSizes{});
  for (int64_t j = 0; j < 70; j += 3) tokens.Key(0, 1, j, 5) = -kInfinity;
  RequestBuilder builder = tokens.Request("efficient");
  builder.Param("return_weights", true);
  ExpectMatchesLowRankOracle(builder.request(), 5, "-inf");
}

TEST_P(Efficient, NanStaysInItsQueryOrInTheHeadsOfItsToken) {
  Tokens tokens(LowRankSizes{});
  tokens.q[(7 * 33 + 4) * 16] = kNan;  // batch entry 1, head 3, query 4
  tokens.Value(1, 0, 5, 2) = kNan;     // query heads 0 and 1, dimension 2
  const std::vector<double> output = RunByName(tokens.Request("efficient").request()).at("output");
  for (size_t n = 0; n < output.size(); ++n) {
    const size_t head = n / (33 * 9), row = n / 9 % 33, d = n % 9;
    const bool lost = (head == 7 && row == 4) || ((head == 4 || head == 5) && d == 2);
    EXPECT_EQ(std::isnan(output[n]), lost) << n;
  }
}

TEST_P(Efficient, ThreadsChangeNoBit) {
  RequestBuilder builder = Tokens(LowRankSizes{.kv_len = 3000}).Request("efficient");
  builder.Param("return_weights", true);
  ExpectSameBitsForAnyThreads(builder.request());
}

TEST_P(Efficient, CostIsLinearInTheLengths) {
  const LowRankSizes s{.q_len = 4000, .kv_len = 3000};
  const Cost cost = EstimateCost(Tokens(s).Request("efficient").request(), 1);
  EXPECT_EQ(cost.flops, 2.0 * 2 * 16 * 9 * (4 * 4000 + 2 * 3000));
  EXPECT_LT(cost.scratch_bytes, 3000 * 4000);  // one matrix of weights alone would take four times
}

TEST_P(Efficient, BadArgumentsAreRefused) {
  const Tokens tokens(LowRankSizes{});
  RequestBuilder lengths = tokens.Request("efficient"), many = tokens.Request("efficient"),
                 causal = tokens.Request("efficient");
  lengths.Integers("key_lengths", {2}, {71, 0});
  ExpectBothRefuse(lengths.request(), ErrorCode::kRange, "key_lengths");
  many.Integers("key_lengths", {3}, {1, 1, 1});
  ExpectBothRefuse(many.request(), ErrorCode::kShape, "key_lengths");
  causal.Param("causal", true);
  ExpectBothRefuse(causal.request(), ErrorCode::kOption, "causal");
  Buffer<float> q({1, 1, 4, 8}, Layout::kDense, 0), lse({1, 1, 4, 1}, Layout::kDense, 0);
  Buffer<float> k = q, v = q, output = q;
  EXPECT_THROW(EfficientAttention(q.view(), k.view(), v.view(), {},
                                  {.output = output.view(), .lse = lse.view()}),
               Error);
  EXPECT_THROW(EfficientAttention(q.view(), k.view(), v.view(), {}, {.output = v.view()}), Error);
}

}  // namespace
}  // namespace heed::testing
