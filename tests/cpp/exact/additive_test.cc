// Additive attention: published numbers, weights of every shape, and its limits.
#include <cmath>
#include <limits>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "request_builder.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

class Additive : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Additive);

AttentionCase Small(int64_t head_dim = 24, int64_t q_len = 33, int64_t kv_len = 70) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = q_len,
                              .kv_len = kv_len,
                              .head_dim = head_dim,
                              .head_dim_v = 9});
  c.scalars.score = Score::kAdditive;
  return c;
}

// Keys of another width than the queries.
void SetKeyWidth(AttentionCase& c, int64_t head_dim_k, Random& random) {
  c.k = Buffer<float>({c.sizes.batch, c.sizes.num_kv_heads, c.sizes.kv_len, head_dim_k},
                      Layout::kDense, 0.0f);
  c.k.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x = random.Normal(); });
}

// All weights, shared by the heads or one each, for keys of width 10.
AttentionCase Weighted(int64_t hidden_dim, bool per_head, uint64_t seed = 1) {
  AttentionCase c = Small(24);
  Random random(seed);
  SetKeyWidth(c, 10, random);
  const auto shape = [&](int64_t heads, int64_t dim) {
    return per_head ? std::vector<int64_t>{heads, hidden_dim, dim}
                    : std::vector<int64_t>{hidden_dim, dim};
  };
  c.AddTensor("query_weight", shape(4, 24), random, 0.2);
  c.AddTensor("key_weight", shape(2, 10), random, 0.3);
  c.AddTensor("score_bias", {hidden_dim}, random);
  const std::vector<int64_t> each = {4, hidden_dim}, shared = {hidden_dim};
  c.AddTensor("score_vector", per_head ? each : shared, random, 0.5);
  return c;
}

TEST_P(Additive, GivesTheNumbersOfKeras) {
  // keras-team/keras, additive_attention_test.py, test_attention_correctness with use_scale=False.
  RequestBuilder builder("additive");
  builder.Floats("q", {1, 1, 2, 2}, {1, 0, 0, 1})
      .Floats("k", {1, 1, 2, 2}, {0, 1, 1, 0})
      .Floats("v", {1, 1, 2, 2}, {1, 2, 3, 4})
      .Param("return_weights", true);
  const Values values = RunByName(builder.request());
  const std::vector<double> output = {1.727, 2.727, 2.272, 3.272};
  const std::vector<double> weights = {0.636, 0.363, 0.363, 0.636};
  EXPECT_THAT(values.at("output"), Pointwise(DoubleNear(1e-3), output));
  EXPECT_THAT(values.at("weights"), Pointwise(DoubleNear(1e-3), weights));
}

TEST_P(Additive, MatchesReferenceWithoutWeights) {
  ExpectMatchesReference(Small());
  AttentionCase c = Small(1);
  c.scalars.scale = -2.5;
  ExpectMatchesReference(c);
}

TEST_P(Additive, MatchesReferenceWithEveryWeight) {
  for (const int64_t hidden_dim : {1, 5, 16, 33, 64}) {
    for (const bool per_head : {false, true})
      ExpectMatchesReference(Weighted(hidden_dim, per_head));
  }
}

TEST_P(Additive, EachWeightMayBeLeftOut) {
  for (const char* name : {"query_weight", "key_weight", "score_bias", "score_vector"}) {
    AttentionCase c = Small(16);
    Random random(3);
    for (const char* weight : {"query_weight", "key_weight"}) {
      c.AddTensor(weight, {16, 16}, random, 0.25);
    }
    c.AddTensor("score_bias", {16}, random);
    c.AddTensor("score_vector", {16}, random);
    c.tensors.erase(name);
    ExpectMatchesReference(c);
  }
}

TEST_P(Additive, WeightsMayBeStrided) {
  AttentionCase c = Small(16);
  Random random(3);
  c.AddTensor("query_weight", {4, 7, 16}, random, 0.25, Layout::kPadded);
  c.AddTensor("key_weight", {7, 16}, random, 0.25, Layout::kReversed);
  ExpectMatchesReference(c);
}

TEST_P(Additive, ReducesToScaledDotProductOfTheProjectionsForTinyNumbers) {
  // tanh(x + y) = x + y + O(x^3), and what the query adds is the same for all keys.
  AttentionCase c = Small(3);
  c.q.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x *= 1e-3f; });
  c.k.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x *= 1e-3f; });
  c.scalars.scale = 1000.0;
  const std::vector<float> additive = RunAttention(c).output.Elements();
  c.scalars.score = Score::kDot;
  c.q.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = 1.0f; });
  const std::vector<float> dot = RunAttention(c).output.Elements();
  for (size_t n = 0; n < dot.size(); ++n) EXPECT_NEAR(additive[n], dot[n], 1e-4);
}

TEST_P(Additive, SaturatesWithoutOverflow) {
  AttentionCase c = Small(4);
  c.q.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x *= 1e30f; });
  ExpectMatchesReference(c);
}

TEST_P(Additive, EmptyRowIsZeroAndMinusInf) {
  AttentionCase c = Weighted(8, true);
  c.key_lengths = {0, 70};
  const Results r = RunAttention(c);
  EXPECT_EQ(r.output(0, 1, 5, 2), 0.0f);
  EXPECT_EQ(r.lse(0, 1, 5, 0), -std::numeric_limits<float>::infinity());
}

TEST_P(Additive, NonFiniteNumbersReachOnlyTheirRows) {
  AttentionCase c = Weighted(8, false);
  c.key_lengths = {60, 69};
  const Results clean = RunAttention(c);
  for (int64_t d = 0; d < 10; ++d) c.k(0, 1, 60, d) = std::nanf("");
  EXPECT_EQ(Bits(clean.output), Bits(RunAttention(c).output));
  c.q(1, 2, 4, 5) = std::nanf("");
  ExpectMatchesReference(c);
}

TEST(AdditiveErrors, NameTheArgument) {
  const auto refused = [](const AttentionCase& c, ErrorCode code, const std::string& name) {
    try {
      RunAttention(c);
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
  };
  const auto with = [](const char* name, std::vector<int64_t> shape) {
    AttentionCase c = Weighted(8, false);
    Random random(1);
    c.AddTensor(name, std::move(shape), random);
    return c;
  };
  refused(with("query_weight", {8, 23}), ErrorCode::kShape, "query_weight");
  refused(with("query_weight", {3, 8, 24}), ErrorCode::kShape, "query_weight");
  refused(with("key_weight", {9, 10}), ErrorCode::kShape, "key_weight");
  refused(with("score_bias", {7}), ErrorCode::kShape, "score_bias");
  refused(with("score_vector", {2, 8}), ErrorCode::kShape, "score_vector");
  refused(with("score_matrix", {24, 10}), ErrorCode::kOption, "score_matrix");
  AttentionCase c = Weighted(8, false);
  c.tensors.erase("key_weight");
  refused(c, ErrorCode::kShape, "key_weight");
  c = Small();
  Random random(1);
  c.scalars.score = Score::kDot;
  c.AddTensor("score_vector", {24}, random);
  refused(c, ErrorCode::kOption, "score_vector");
}

}  // namespace
}  // namespace heed::testing
