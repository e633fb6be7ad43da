// Gradients of compositions without keys, external attention and synthesizers, against central
// differences of the float64 oracle.
#include <cmath>
#include <limits>
#include <string>

#include "backward_case.h"
#include "gtest/gtest.h"
#include "normal_input.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class KeylessGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(KeylessGradient);

struct Shape {
  int64_t batch, heads, len, units, dim, dim_v, learned_heads;
};

RequestBuilder External(const Shape& s) {
  RequestBuilder builder("external");
  AddNormal(builder, "q", {s.batch, s.heads, s.len, s.dim}, 1);
  AddNormal(builder, "memory_k", {s.learned_heads, s.units, s.dim}, 2);
  AddNormal(builder, "memory_v", {s.learned_heads, s.units, s.dim_v}, 3);
  builder.Param("scale", 0.4);
  return builder;
}

// Learned tensors reach 2 further than they must.
RequestBuilder Dense(const Shape& s) {
  RequestBuilder builder("synthesizer");
  AddNormal(builder, "q", {s.batch, s.heads, s.len, s.dim}, 1);
  AddNormal(builder, "synthetic_keys", {s.learned_heads, s.units + 2, s.dim}, 2, 0.5f);
  AddNormal(builder, "synthetic_bias", {s.learned_heads, s.units + 2}, 3);
  AddNormal(builder, "v", {s.batch, s.learned_heads, s.units, s.dim_v}, 4);
  builder.Param("return_lse", true);
  return builder;
}

RequestBuilder RandomScores(const Shape& s) {
  RequestBuilder builder("synthesizer");
  AddNormal(builder, "synthetic_scores", {s.heads, s.len + 2, s.len + 2}, 2);
  AddNormal(builder, "v", {s.batch, s.learned_heads, s.len, s.dim_v}, 4);
  builder.Param("return_lse", true);
  return builder;
}

const Shape kSmall[] = {{1, 1, 1, 1, 1, 1, 1}, {2, 3, 4, 5, 3, 2, 3}, {2, 2, 5, 3, 2, 3, 1}};

TEST_P(KeylessGradient, MatchesDifferencesOfReference) {
  for (const Shape& s : kSmall) {
    for (const RequestBuilder& builder : {External(s), Dense(s), RandomScores(s)}) {
      ExpectElementsMatch(builder.request(), kComposedGradientMaxError, builder.request().id);
    }
  }
}

TEST_P(KeylessGradient, MatchesAlongDirections) {
  const Shape s = {2, 3, 130, 70, 9, 17, 3};
  for (const RequestBuilder& builder : {External(s), Dense(s), RandomScores(s)}) {
    ExpectDirectionsMatch(builder.request(), kComposedGradientMaxError, builder.request().id);
  }
}

TEST_P(KeylessGradient, MatchesWithOptions) {
  const Shape s = {2, 2, 4, 4, 3, 2, 2};
  RequestBuilder dense = Dense(s), random = RandomScores(s), external = External(s);
  AddNormal(dense, "bias", {1, 2, 4, 4}, 6);
  AddNormal(dense, "alibi_slopes", {2}, 7);
  dense.Integers("key_lengths", {2}, {3, 0}).Param("softcap", 4.0).Param("scale", 0.7);
  AddNormal(random, "sinks", {2}, 7);
  random.Param("causal", true);
  external.Integers("key_lengths", {2}, {3, 0});
  for (const RequestBuilder* builder : {&dense, &random, &external}) {
    ExpectElementsMatch(builder->request(), kComposedGradientMaxError, builder->request().id);
  }
}

TEST_P(KeylessGradient, SameBitsForAnyNumberOfThreads) {
  const Shape s = {2, 3, 90, 70, 9, 17, 1};
  for (const RequestBuilder& builder : {External(s), Dense(s), RandomScores(s)}) {
    ExpectSameGradientsForAnyThreads(builder.request(), builder.request().id);
  }
}

// Tokens beyond the length are NaN, and so is what arrives there.
TEST_P(KeylessGradient, TokensBeyondTheirLengthReachNothing) {
  RequestBuilder builder("external");
  builder.Floats("q", {1, 1, 3, 2}, {1, 2, 3, -1, kNan, kNan})
      .Floats("memory_k", {1, 2, 2}, {1, 0, 0.5f, 1})
      .Floats("memory_v", {1, 2, 1}, {1, 2})
      .Integers("key_lengths", {1}, {2});
  Backward backward(builder.request());
  backward.d_results.values(0)[2] = kNan;
  backward.Run(builder.request());
  for (const auto& [name, values] : backward.gradients.ByName()) {
    for (const double x : values) EXPECT_TRUE(std::isfinite(x)) << name;
    if (name != "q") continue;
    EXPECT_EQ(values[4], 0);
    EXPECT_EQ(values[5], 0);
  }
}

}  // namespace
}  // namespace heed::testing
