// Gradients of Sinkhorn attention against central differences of the float64 oracle.
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

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class SinkhornGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(SinkhornGradient);

RequestBuilder Sorted(const SelectiveSizes& s, double key_block, bool causal, uint64_t seed = 1) {
  RequestBuilder builder = SelectiveRequest("sinkhorn", s, seed);
  builder.Param("key_block", key_block).Param("causal", causal);
  return builder;
}

// Logits [batch, num_heads, blocks, blocks].
void AddLogits(RequestBuilder& builder, const SelectiveSizes& s, int64_t blocks) {
  builder.Floats("sort_logits", {s.batch, s.num_heads, blocks, blocks},
                 Normals(s.batch * s.num_heads * blocks * blocks, 8));
}

TEST_P(SinkhornGradient, MatchesDifferencesOfReference) {
  for (const SelectiveSizes& s :
       {SelectiveSizes{1, 1, 1, 1, 1, 1, 1}, SelectiveSizes{2, 4, 2, 11, 11, 3, 5}}) {
    for (const bool causal : {false, true}) {
      const std::string what = causal ? "causal" : "both ways";
      ExpectElementsMatch(Sorted(s, 3, causal).request(), kGradientMaxError, what);
      RequestBuilder builder = Sorted(s, 3, causal);
      builder.Param("sort_iterations", 3.0).Param("sort_temperature", 0.5).Param("scale", 1.2);
      AddLogits(builder, s, (s.q_len + 2) / 3);
      ExpectElementsMatch(builder.request(), kGradientMaxError, what + ", logits");
    }
  }
}

TEST_P(SinkhornGradient, BlocksBeyondAllTokensCostNoMore) {
  const SelectiveSizes s = {2, 4, 2, 11, 11, 3, 5};
  for (const bool causal : {false, true}) {
    ExpectElementsMatch(Sorted(s, 1e9, causal).request(), kGradientMaxError, "1e9 tokens");
  }
}

TEST_P(SinkhornGradient, MatchesAlongDirectionsAroundTiles) {
  for (const bool causal : {false, true}) {
    for (const SelectiveSizes& s :
         {SelectiveSizes{1, 3, 1, 65, 65, 17, 9}, SelectiveSizes{2, 2, 2, 150, 150, 8, 20}}) {
      ExpectDirectionsMatch(Sorted(s, 16, causal, 4).request(), kGradientMaxError,
                            "length " + std::to_string(s.q_len));
    }
  }
}

TEST_P(SinkhornGradient, MatchesBeyondLengths) {
  for (const bool causal : {false, true}) {
    RequestBuilder builder = Sorted({4, 2, 1, 9, 9, 3, 2}, 2, causal, 7);
    builder.Integers("key_lengths", {4}, {9, 0, 1, 6});
    ExpectElementsMatch(builder.request(), kGradientMaxError, "lengths 9, 0, 1 and 6");
  }
}

// Where a logit is -inf its block never comes, and learns nothing there.
TEST_P(SinkhornGradient, BlocksThatNeverComeGetExactlyZero) {
  const SelectiveSizes s = {1, 1, 1, 6, 6, 2, 2};
  std::vector<float> logits = Normals(9, 3);
  logits[1] = logits[4] = logits[7] = -kInf;  // block 1 stays at home
  logits[6] = -kInf;
  for (const bool causal : {false, true}) {
    RequestBuilder builder = Sorted(s, 2, causal);
    builder.Floats("sort_logits", {1, 1, 3, 3}, logits);
    ExpectElementsMatch(builder.request(), kGradientMaxError, "logits of -inf");
    Backward backward(builder.request());
    for (size_t n = 0; n < 4; ++n) {
      for (const float x : backward.gradients.values(n)) EXPECT_TRUE(std::isfinite(x));
    }
    for (const size_t n : {1, 4, 6, 7}) EXPECT_EQ(backward.gradients.values(3)[n], 0.0f);
  }
}

TEST_P(SinkhornGradient, TokensBeyondTheirLengthGetExactlyZero) {
  std::vector<float> q = Normals(8 * 3, 1), k = Normals(8 * 3, 2), v = Normals(8 * 2, 3);
  std::fill(q.begin() + 15, q.end(), kNan);
  std::fill(k.begin() + 15, k.end(), kNan);
  std::fill(v.begin() + 10, v.end(), kNan);
  RequestBuilder builder("sinkhorn");
  builder.Floats("q", {1, 1, 8, 3}, q)
      .Floats("k", {1, 1, 8, 3}, k)
      .Floats("v", {1, 1, 8, 2}, v)
      .Integers("key_lengths", {1}, {5})
      .Param("key_block", 2.0);
  Backward backward(builder.request());
  for (size_t n = 0; n < 3; ++n) {
    const std::vector<float>& values = backward.gradients.values(n);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(std::isfinite(values[i]));
      EXPECT_TRUE(i < values.size() / 8 * 5 || values[i] == 0.0f);
    }
  }
}

TEST_P(SinkhornGradient, SameBitsForAnyNumberOfThreads) {
  for (const bool causal : {false, true}) {
    ExpectSameGradientsForAnyThreads(Sorted({2, 4, 2, 200, 200, 8, 8}, 16, causal).request(),
                                     "sinkhorn");
  }
}

TEST(SinkhornGradientMemory, GrowsWithTheLength) {
  const auto bytes = [](int64_t len) {
    return static_cast<double>(
        BackwardScratchBytes(Sorted({1, 2, 1, len, len, 8, 8}, 256, false).request()));
  };
  EXPECT_GT(bytes(2048), 0);
  EXPECT_LT(bytes(4096), 2.2 * bytes(2048));
}

TEST(SinkhornGradientRefuses, WhatForwardRefuses) {
  RequestBuilder builder = Sorted({1, 1, 1, 4, 4, 2, 2}, 2, false);
  builder.Param("sort_temperature", 0.0);
  EXPECT_THAT(BackwardRefusal(builder.request()), ::testing::HasSubstr("range: sort_temperature"));
}

}  // namespace
}  // namespace heed::testing
