// Routing attention: against the oracle, its limit, clusters by hand, and what it refuses.
#include <cmath>
#include <limits>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/selective.h"
#include "selective_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Routing : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Routing);

TEST_P(Routing, MatchesReference) {
  uint64_t seed = 1;
  for (const SelectiveSizes& s : CrossSizes()) {
    for (const double clusters : {1, 5}) {
      for (const bool causal : {true, false}) {
        RequestBuilder builder = SelectiveRequest("routing", s, seed++);
        builder.Param("num_clusters", clusters)
            .Param("causal", causal)
            .Param("centroid_seed", static_cast<double>(seed))
            .Param("return_weights", true);
        if (s.q_len != s.kv_len) builder.Param("query_offset", std::string("end"));
        ExpectChoiceMatchesOracle(builder.request(), "length " + std::to_string(s.kv_len), 2);
      }
    }
  }
}

TEST_P(Routing, LengthsAndGivenCentroidsMatchReference) {
  const SelectiveSizes s = {3, 4, 2, 40, 90, 8, 6};
  RequestBuilder builder = SelectiveRequest("routing", s, 2);
  builder.Integers("key_lengths", {3}, {90, 0, 29})
      .Floats("centroids", {4, 6, 8}, Normals(4 * 6 * 8, 9))
      .Param("cluster_tokens", 33.0);
  ExpectChoiceMatchesOracle(builder.request(), "lengths 90, 0 and 29", 2);
}

TEST_P(Routing, ReducesToScaledDotProductWithOneCluster) {
  for (const SelectiveSizes& s : SelfSizes()) {
    RequestBuilder one = SelectiveRequest("routing", s, 9);
    RequestBuilder exact = SelectiveRequest("scaled_dot_product", s, 9);
    one.Param("num_clusters", 1.0).Param("causal", true);
    exact.Param("causal", true);
    ExpectSameOutput(one.request(), exact.request(), 3);
  }
}

// Two clusters on a line, of 2 tokens each; equal weights; values are the positions.
RequestBuilder OnALine(std::vector<float> q, std::vector<float> k) {
  RequestBuilder builder("routing");
  builder.Floats("q", {1, 1, 4, 2}, std::move(q))
      .Floats("k", {1, 1, 4, 2}, std::move(k))
      .Floats("v", {1, 1, 4, 1}, {0, 1, 2, 3})
      .Floats("centroids", {1, 2, 2}, {1, 0, 0, 1})
      .Param("scale", 0.0);
  return builder;
}

TEST_P(Routing, ClustersTakeWhatOneTakesByHand) {
  // Right, up, right, up; lengths do not matter. Keys: right are 0 and 3, up 1 and 2.
  const std::vector<float> q = {9, 1, 1, 5, 2, 0, 0, 1}, k = {1, 0, 0, 7, 1, 2, 3, 1};
  RequestBuilder all = OnALine(q, k);
  ExpectAllNear(RunByName(all.request()).at("output"), {1.5, 1.5, 1.5, 1.5}, 1e-6);
  RequestBuilder causal = OnALine(q, k);
  causal.Param("causal", true);
  ExpectAllNear(RunByName(causal.request()).at("output"), {0, 1, 0, 1.5}, 1e-6);
}

TEST_P(Routing, QueriesAverageTheirClustersAndMayHaveNone) {
  // Query 0 is diagonal and the best of both but for one each; clusters of one token.
  const std::vector<float> q = {1, 1, 1, 1, -1, -1, -1, -1}, k = {1, 0, 0, 1, -1, 0, 0, -1};
  RequestBuilder builder = OnALine(q, k);
  builder.Param("cluster_tokens", 1.0);
  // Both clusters take query 0, the first of equals, and keys 0 and 1.
  ExpectAllNear(RunByName(builder.request()).at("output"), {0.5, 0, 0, 0}, 1e-6);
}

TEST_P(Routing, WhatDoesNotExistCannotMatter) {
  std::vector<float> k = Normals(40 * 4, 3), v = Normals(40 * 4, 4);
  const auto run = [&] {
    RequestBuilder builder("routing");
    builder.Floats("q", {1, 1, 6, 4}, Normals(24, 5))
        .Floats("k", {1, 1, 40, 4}, k)
        .Floats("v", {1, 1, 40, 4}, v)
        .Integers("key_lengths", {1}, {30})
        .Param("num_clusters", 3.0)
        .Param("cluster_tokens", 12.0);
    return RunByName(builder.request()).at("output");
  };
  const std::vector<double> before = run();
  for (size_t n = 30 * 4; n < k.size(); ++n) k[n] = v[n] = kNan;
  EXPECT_EQ(run(), before);
}

TEST_P(Routing, MemoryGrowsWithTheLength) {
  const auto bytes = [](int64_t len) {
    return ScratchBytes(SelectiveRequest("routing", {1, 2, 2, len, len, 8, 8}, 1).request());
  };
  EXPECT_LT(bytes(8192), 2.5 * static_cast<double>(bytes(4096)));
}

TEST(RoutingRefuses, NumbersThatMakeNoClusters) {
  for (const char* name : {"num_clusters", "cluster_tokens"}) {
    RequestBuilder zero = SelectiveRequest("routing", {}, 1);
    zero.Param(name, 0.0);
    ExpectBothRefuse(zero.request(), ErrorCode::kRange, name);
  }
  RequestBuilder both = SelectiveRequest("routing", {}, 1);
  both.Floats("centroids", {1, 2, 8}, Normals(16, 1)).Param("num_clusters", 2.0);
  ExpectBothRefuse(both.request(), ErrorCode::kOption, "num_clusters");
  RequestBuilder narrow = SelectiveRequest("routing", {}, 1);
  narrow.Floats("centroids", {1, 2, 3}, Normals(6, 1));
  ExpectBothRefuse(narrow.request(), ErrorCode::kShape, "centroids");
}

}  // namespace
}  // namespace heed::testing
