// Gradients of Reformer against central differences of the float64 oracle, whose steps change no
// bucket.
#include <cmath>
#include <limits>
#include <string>

#include "backward_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "selective_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class ReformerGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(ReformerGradient);

RequestBuilder Hashed(const SelectiveSizes& s, double rounds, double buckets, double chunk,
                      uint64_t seed = 1) {
  RequestBuilder builder("reformer");
  builder
      .Floats("q", {s.batch, s.num_heads, s.q_len, s.head_dim},
              Normals(s.batch * s.num_heads * s.q_len * s.head_dim, seed))
      .Floats("v", {s.batch, s.num_kv_heads, s.q_len, s.head_dim_v},
              Normals(s.batch * s.num_kv_heads * s.q_len * s.head_dim_v, seed + 1))
      .Param("hash_rounds", rounds)
      .Param("hash_buckets", buckets)
      .Param("hash_chunk", chunk)
      .Param("return_lse", true);
  return builder;
}

TEST_P(ReformerGradient, MatchesDifferencesOfReference) {
  for (const SelectiveSizes& s :
       {SelectiveSizes{1, 1, 1, 1, 1, 2, 1}, SelectiveSizes{2, 4, 2, 13, 13, 3, 5}}) {
    for (const double rounds : {1, 3}) {
      for (const bool causal : {false, true}) {
        RequestBuilder builder = Hashed(s, rounds, 4, 3);
        builder.Param("causal", causal).Param("scale", 1.5);
        ExpectElementsMatch(builder.request(), kGradientMaxError,
                            "rounds " + std::to_string(rounds));
      }
    }
  }
}

TEST_P(ReformerGradient, MatchesAlongDirectionsAroundTiles) {
  for (const SelectiveSizes& s :
       {SelectiveSizes{1, 2, 1, 65, 65, 17, 9}, SelectiveSizes{2, 2, 2, 150, 150, 8, 20}}) {
    ExpectDirectionsMatch(Hashed(s, 2, 6, 32, 7).request(), kGradientMaxError,
                          "length " + std::to_string(s.q_len));
  }
}

TEST_P(ReformerGradient, MatchesBeyondLengths) {
  const SelectiveSizes s = {3, 2, 1, 9, 9, 3, 2};
  RequestBuilder builder = Hashed(s, 2, 2, 4);
  builder.Integers("key_lengths", {3}, {9, 0, 5});
  ExpectElementsMatch(builder.request(), kGradientMaxError, "lengths 9, 0 and 5");
}

TEST_P(ReformerGradient, TokensBeyondTheirLengthGetExactlyZero) {
  std::vector<float> q = Normals(8 * 3, 1), v = Normals(8 * 2, 2);
  for (size_t n = 5 * 3; n < q.size(); ++n) q[n] = kNan;
  for (size_t n = 5 * 2; n < v.size(); ++n) v[n] = kNan;
  RequestBuilder builder("reformer");
  builder.Floats("q", {1, 1, 8, 3}, q)
      .Floats("v", {1, 1, 8, 2}, v)
      .Integers("key_lengths", {1}, {5})
      .Param("hash_buckets", 2.0);
  Backward backward(builder.request());
  for (size_t n = 0; n < 2; ++n) {
    const std::vector<float>& values = backward.gradients.values(n);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(std::isfinite(values[i]));
      EXPECT_TRUE(i < values.size() / 8 * 5 || values[i] == 0.0f);
    }
  }
}

// The first token sees itself alone: its lse is scale times its length, its output its value.
TEST_P(ReformerGradient, ATokenAloneLearnsByItsLength) {
  RequestBuilder builder("reformer");
  builder.Floats("q", {1, 1, 1, 2}, {3, 4})
      .Floats("v", {1, 1, 1, 1}, {7})
      .Param("scale", 10.0)
      .Param("causal", true);
  Backward backward(builder.request());
  backward.d_results.values(0)[0] = 2;
  backward.d_results.values(1)[0] = 0.5f;
  backward.Run(builder.request());
  EXPECT_FLOAT_EQ(backward.gradients.values(0)[0], 3);
  EXPECT_FLOAT_EQ(backward.gradients.values(0)[1], 4);
  EXPECT_EQ(backward.gradients.values(1)[0], 2);
}

TEST_P(ReformerGradient, SameBitsForAnyNumberOfThreads) {
  ExpectSameGradientsForAnyThreads(Hashed({2, 4, 2, 300, 300, 8, 8}, 3, 8, 16).request(),
                                   "reformer");
}

TEST(ReformerGradientMemory, GrowsWithTheLength) {
  const auto bytes = [](int64_t len) {
    return static_cast<double>(
        BackwardScratchBytes(Hashed({1, 2, 1, len, len, 8, 8}, 2, 8, 16).request()));
  };
  EXPECT_GT(bytes(2048), 0);
  EXPECT_LT(bytes(4096), 2.2 * bytes(2048));
}

TEST(ReformerGradientRefuses, WhatHasNoGradient) {
  RequestBuilder weights = Hashed({1, 1, 1, 4, 4, 2, 2}, 1, 2, 4);
  weights.Param("return_weights", true);
  EXPECT_THAT(BackwardRefusal(weights.request()),
              ::testing::HasSubstr("unsupported: return_weights"));
  EXPECT_THAT(BackwardRefusal(Hashed({1, 1, 1, 4, 4, 2, 2}, 1, 3, 4).request()),
              ::testing::HasSubstr("range: hash_buckets"));
}

}  // namespace
}  // namespace heed::testing
