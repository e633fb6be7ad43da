// Gradients of routing attention against central differences of the float64 oracle, whose steps
// move no token to another cluster.
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

class RoutingGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(RoutingGradient);

RequestBuilder Routed(const SelectiveSizes& s, double clusters, double tokens, uint64_t seed = 1) {
  RequestBuilder builder = SelectiveRequest("routing", s, seed);
  builder.Param("num_clusters", clusters).Param("cluster_tokens", tokens);
  return builder;
}

TEST_P(RoutingGradient, MatchesDifferencesOfReference) {
  for (const SelectiveSizes& s :
       {SelectiveSizes{1, 1, 1, 1, 1, 1, 1}, SelectiveSizes{2, 4, 2, 11, 11, 3, 5}}) {
    for (const bool causal : {false, true}) {
      RequestBuilder builder = Routed(s, 3, 6);
      builder.Param("causal", causal).Param("scale", 1.5);
      ExpectElementsMatch(builder.request(), kGradientMaxError, causal ? "causal" : "both ways");
    }
  }
}

TEST_P(RoutingGradient, MatchesAlongDirectionsAroundTiles) {
  for (const SelectiveSizes& s :
       {SelectiveSizes{1, 3, 1, 65, 65, 17, 9}, SelectiveSizes{2, 2, 2, 60, 150, 8, 20}}) {
    ExpectDirectionsMatch(Routed(s, 4, 50).request(), kGradientMaxError,
                          "length " + std::to_string(s.kv_len));
  }
}

TEST_P(RoutingGradient, MatchesBeyondLengthsWithGivenCentroids) {
  const SelectiveSizes s = {3, 2, 1, 7, 9, 3, 2};
  RequestBuilder builder = SelectiveRequest("routing", s, 3);
  builder.Integers("key_lengths", {3}, {9, 0, 5})
      .Floats("centroids", {2, 2, 3}, Normals(2 * 2 * 3, 9))
      .Param("cluster_tokens", 4.0)
      .Param("causal", true)
      .Param("query_offset", std::string("end"));
  ExpectElementsMatch(builder.request(), kGradientMaxError, "lengths 9, 0 and 5");
  EXPECT_EQ(Backward(builder.request()).gradients.size(), 3u);  // centroids only steer
}

TEST_P(RoutingGradient, TokensBeyondTheirLengthGetExactlyZero) {
  std::vector<float> k = Normals(8 * 3, 1), v = Normals(8 * 2, 2);
  for (size_t n = 5 * 3; n < k.size(); ++n) k[n] = kNan;
  for (size_t n = 5 * 2; n < v.size(); ++n) v[n] = kNan;
  RequestBuilder builder("routing");
  builder.Floats("q", {1, 1, 6, 3}, Normals(6 * 3, 3))
      .Floats("k", {1, 1, 8, 3}, k)
      .Floats("v", {1, 1, 8, 2}, v)
      .Integers("key_lengths", {1}, {5})
      .Param("num_clusters", 2.0);
  Backward backward(builder.request());
  for (size_t n = 0; n < 3; ++n) {
    const std::vector<float>& values = backward.gradients.values(n);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(std::isfinite(values[i]));
      EXPECT_TRUE(n == 0 || i < values.size() / 8 * 5 || values[i] == 0.0f);
    }
  }
}

// A query that no cluster takes has an empty row.
TEST_P(RoutingGradient, NanThatArrivesAtAnEmptyRowReachesNothing) {
  RequestBuilder builder("routing");
  builder.Floats("q", {1, 1, 3, 2}, {1, 0, 0, 1, 1, 0.1f})
      .Floats("k", {1, 1, 3, 2}, {1, 0, 0, 1, 1, 0.1f})
      .Floats("v", {1, 1, 3, 1}, {1, 2, 3})
      .Floats("centroids", {1, 1, 2}, {1, 0})
      .Param("cluster_tokens", 2.0);
  Backward backward(builder.request());
  backward.d_results.values(0)[1] = kNan;
  backward.Run(builder.request());
  for (size_t n = 0; n < 3; ++n) {
    for (const float x : backward.gradients.values(n)) EXPECT_TRUE(std::isfinite(x));
  }
  EXPECT_EQ(backward.gradients.values(0)[2], 0.0f);
  EXPECT_EQ(backward.gradients.values(0)[3], 0.0f);
}

TEST_P(RoutingGradient, SameBitsForAnyNumberOfThreads) {
  ExpectSameGradientsForAnyThreads(Routed({2, 4, 2, 300, 300, 8, 8}, 5, 100).request(), "routing");
}

TEST(RoutingGradientMemory, GrowsWithTheLength) {
  const auto bytes = [](int64_t len) {
    return static_cast<double>(
        BackwardScratchBytes(Routed({1, 2, 1, len, len, 8, 8}, 8, 64).request()));
  };
  EXPECT_GT(bytes(2048), 0);
  EXPECT_LT(bytes(4096), 2.2 * bytes(2048));
}

TEST(RoutingGradientRefuses, WhatHasNoGradient) {
  RequestBuilder weights = Routed({1, 1, 1, 4, 4, 2, 2}, 1, 2);
  weights.Param("return_weights", true);
  EXPECT_THAT(BackwardRefusal(weights.request()),
              ::testing::HasSubstr("unsupported: return_weights"));
  EXPECT_THAT(BackwardRefusal(Routed({1, 1, 1, 4, 4, 2, 2}, 1, 0).request()),
              ::testing::HasSubstr("range: cluster_tokens"));
}

}  // namespace
}  // namespace heed::testing
