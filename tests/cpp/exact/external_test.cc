// External attention: against the oracle, its limits, and numbers from its definition.
#include <algorithm>
#include <cmath>
#include <limits>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/compose.h"
#include "normal_input.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class External : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(External);

struct Shape {
  int64_t batch = 2, heads = 3, len = 70, units = 20, dim = 16, dim_v = 9, memory_heads = 3;
};

RequestBuilder MakeExternal(const Shape& s, std::vector<float> q) {
  RequestBuilder builder("external");
  builder.Floats("q", {s.batch, s.heads, s.len, s.dim}, std::move(q))
      .Floats("memory_k", {s.memory_heads, s.units, s.dim},
              NormalFloats(s.memory_heads * s.units * s.dim, 2))
      .Floats("memory_v", {s.memory_heads, s.units, s.dim_v},
              NormalFloats(s.memory_heads * s.units * s.dim_v, 3))
      .Param("scale", 0.4)
      .Param("return_weights", true);
  return builder;
}

RequestBuilder MakeExternal(const Shape& s) {
  return MakeExternal(s, NormalFloats(s.batch * s.heads * s.len * s.dim, 1));
}

// |v| < 5 here, and logits stay below 16.
void ExpectExternalMatches(const Request& request) {
  const Values expected = RunOracle(request), actual = RunByName(request);
  ExpectAllNear(actual.at("output"), expected.at("output"), 3 * kAttentionMaxError * 5);
  ExpectAllNear(actual.at("weights"), expected.at("weights"), 3 * kAttentionMaxError);
}

TEST_P(External, MatchesReference) {
  for (const Shape& s : {Shape{}, Shape{.memory_heads = 1}, Shape{.heads = 1, .memory_heads = 1},
                         Shape{.len = 600, .units = 64}, Shape{.len = 1, .units = 1},
                         Shape{.batch = 1, .len = 40, .units = 300, .dim = 7}}) {
    ExpectExternalMatches(MakeExternal(s).request());
  }
}

TEST_P(External, LengthsMatchReference) {
  RequestBuilder builder = MakeExternal({});
  builder.Integers("key_lengths", {2}, {41, 0});
  ExpectExternalMatches(builder.request());
}

TEST_P(External, GivesTheNumbersOfItsDefinition) {
  // Scores exp: token 0: (1, 3), token 1: (1, 1). Columns: (1/2, 3/4) and (1/2, 1/4). Rows: 2/5,
  // 3/5 and 2/3, 1/3. The scale of 1 is the default.
  RequestBuilder builder("external");
  builder.Floats("q", {1, 1, 2, 1}, {1, 0})
      .Floats("memory_k", {1, 2, 1}, {0, std::log(3.0f)})
      .Floats("memory_v", {1, 2, 1}, {15, 30})
      .Param("return_weights", true);
  const Values values = RunByName(builder.request());
  ExpectAllNear(values.at("weights"), {0.4, 0.6, 2 / 3.0, 1 / 3.0}, 3e-7);
  ExpectAllNear(values.at("output"), {24, 20}, 1e-5);
}

TEST_P(External, ColumnsAreNormalisedOverTheTokens) {
  // Equation 8 of the paper: before the rows are normalised, every column sums to 1. Rows of equal
  // tokens therefore share the units evenly, however unlike the units are.
  const Shape s{.batch = 1, .heads = 1, .len = 50, .units = 8, .memory_heads = 1};
  std::vector<float> q = NormalFloats(s.dim, 9), all;
  for (int n = 0; n < 50; ++n) all.insert(all.end(), q.begin(), q.end());
  const Values values = RunByName(MakeExternal(s, all).request());
  for (const double w : values.at("weights")) EXPECT_NEAR(w, 1 / 8.0, 1e-6);
}

TEST_P(External, ReducesToScaledDotProductWhenTheColumnsAreAlike) {
  // Tokens q and -q, units k and -k: both columns add the same exponentials, so dividing by their
  // sums changes nothing.
  const std::vector<float> half = NormalFloats(20 * 4, 5), k = NormalFloats(4, 6),
                           v = NormalFloats(6, 7);
  std::vector<float> q = half;
  for (const float x : half) q.push_back(-x);
  std::vector<float> keys = k;
  for (const float x : k) keys.push_back(-x);
  RequestBuilder external("external"), plain("scaled_dot_product");
  external.Floats("q", {1, 1, 40, 4}, q)
      .Floats("memory_k", {1, 2, 4}, keys)
      .Floats("memory_v", {1, 2, 3}, v);
  plain.Floats("q", {1, 1, 40, 4}, q)
      .Floats("k", {1, 1, 2, 4}, keys)
      .Floats("v", {1, 1, 2, 3}, v)
      .Param("scale", 1.0);
  ExpectAllNear(RunByName(external.request()).at("output"), RunByName(plain.request()).at("output"),
                1e-5);
}

TEST_P(External, TokensBeyondTheLengthAreEmptyAndMayBeAnything) {
  const Shape s{};
  std::vector<float> q = NormalFloats(s.batch * s.heads * s.len * s.dim, 1);
  RequestBuilder clean = MakeExternal(s, q);
  for (int64_t h = 0; h < 3; ++h) q[static_cast<size_t>((h * 70 + 50) * 16)] = kNan;
  RequestBuilder poisoned = MakeExternal(s, q);
  for (RequestBuilder* builder : {&clean, &poisoned}) {
    builder->Integers("key_lengths", {2}, {50, 70});
  }
  const Values values = RunByName(clean.request());
  EXPECT_EQ(RunByName(poisoned.request()), values);
  for (size_t n = 50 * 9; n < 70 * 9; ++n) EXPECT_EQ(values.at("output")[n], 0.0);
  for (size_t n = 50 * 20; n < 70 * 20; ++n) EXPECT_EQ(values.at("weights")[n], 0.0);
}

TEST_P(External, NanTokenIsInEveryColumnOfItsHead) {
  const Shape s{};
  std::vector<float> q = NormalFloats(s.batch * s.heads * s.len * s.dim, 1);
  q[static_cast<size_t>((1 * 70 + 5) * 16 + 3)] = kNan;  // batch 0, head 1
  const std::vector<double> output = RunByName(MakeExternal(s, q).request()).at("output");
  for (size_t n = 0; n < output.size(); ++n) EXPECT_EQ(std::isnan(output[n]), n / 630 == 1) << n;
}

TEST_P(External, ThreadsChangeNoBit) {
  ExpectSameBitsForAnyThreads(MakeExternal({.len = 300}).request());
}

TEST_P(External, BadArgumentsAreRefused) {
  const Shape s{};
  RequestBuilder heads = MakeExternal({.memory_heads = 2});
  ExpectBothRefuse(heads.request(), ErrorCode::kShape, "memory_k");
  RequestBuilder lengths = MakeExternal(s), many = MakeExternal(s), none("external");
  lengths.Integers("key_lengths", {2}, {71, 0});
  ExpectBothRefuse(lengths.request(), ErrorCode::kRange, "key_lengths");
  many.Integers("key_lengths", {3}, {1, 1, 1});
  ExpectBothRefuse(many.request(), ErrorCode::kShape, "key_lengths");
  none.Floats("q", {1, 1, 1, 1}, {0}).Floats("memory_k", {1, 1, 1}, {0});
  ExpectBothRefuse(none.request(), ErrorCode::kOption, "memory_v");
  Buffer<float> q({2, 1, 4, 8}, Layout::kDense, 0), output({2, 1, 4, 8}, Layout::kDense, 0);
  EXPECT_THROW(ExternalAttention(q.view(), q.view(), q.view(), {}, {.output = output.view()}),
               Error);  // memory of two batch entries
}

}  // namespace
}  // namespace heed::testing
