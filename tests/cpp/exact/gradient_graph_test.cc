// Gradients of graph attention against central differences of the float64 oracle.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attention_case.h"
#include "backward_case.h"
#include "gtest/gtest.h"
#include "normal_input.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class GraphGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(GraphGradient);

RequestBuilder MakeGraph(const Sizes& s, int64_t num_edges, const std::string& score,
                         uint64_t seed = 1) {
  RequestBuilder builder("graph");
  AddNormal(builder, "q", {s.batch, s.num_heads, s.q_len, s.head_dim}, seed);
  AddNormal(builder, "k", {s.batch, s.num_kv_heads, s.kv_len, s.head_dim}, seed + 1);
  AddNormal(builder, "v", {s.batch, s.num_kv_heads, s.kv_len, s.head_dim_v}, seed + 2);
  AddNormal(builder, "score_weight", {s.num_heads, s.head_dim * (score == "gat" ? 2 : 1)}, seed + 3,
            0.3f);
  Random random(seed);
  std::vector<int32_t> edges;
  for (int64_t e = 0; e < num_edges; ++e) {
    edges.push_back(static_cast<int32_t>(random.Integer(0, s.kv_len - 1)));
    edges.push_back(static_cast<int32_t>(random.Integer(0, s.q_len - 1)));
  }
  builder.Integers("edges", {num_edges, 2}, edges);
  builder.Param("graph_score", score).Param("return_lse", true);
  return builder;
}

const char* const kScores[] = {"gat", "gatv2"};

TEST_P(GraphGradient, MatchesDifferencesOfReference) {
  for (const char* score : kScores) {
    // Grouped heads, nodes without edges, edges listed twice; no edge at all.
    for (const int64_t num_edges : {0, 9, 40}) {
      const RequestBuilder builder = MakeGraph({2, 4, 2, 5, 6, 3, 2}, num_edges, score);
      ExpectElementsMatch(builder.request(), kComposedGradientMaxError, score);
    }
  }
}

// A step crosses kinks of scores here and there: kinks without slopes on their other side do not
// differ.
TEST_P(GraphGradient, MatchesAlongDirections) {
  for (const char* score : kScores) {
    RequestBuilder builder = MakeGraph({2, 2, 1, 70, 90, 70, 67}, 900, score);
    builder.Param("negative_slope", 1.0);
    ExpectDirectionsMatch(builder.request(), kComposedGradientMaxError, score);
  }
}

TEST_P(GraphGradient, SameBitsForAnyNumberOfThreads) {
  for (const char* score : kScores) {
    const RequestBuilder builder = MakeGraph({2, 4, 2, 150, 130, 20, 19}, 2000, score);
    ExpectSameGradientsForAnyThreads(builder.request(), score);
  }
}

// No edge leaves from source 1 or arrives at target 1: their numbers are NaN, and so is what
// arrives at target 1.
TEST_P(GraphGradient, NodesWithoutEdgesReachNothing) {
  for (const char* score : kScores) {
    RequestBuilder builder("graph");
    const std::vector<float> weight = {0.5f, -1, 2, 0.3f};
    const bool gat = std::string(score) == "gat";
    builder.Floats("q", {1, 1, 3, 2}, {1, 2, kNan, kNan, 3, -1})
        .Floats("k", {1, 1, 3, 2}, {2, 1, kNan, kNan, -1, 1})
        .Floats("v", {1, 1, 3, 1}, {1, kNan, 3})
        .Floats("score_weight", {1, gat ? 4 : 2}, {weight.begin(), weight.begin() + (gat ? 4 : 2)})
        .Integers("edges", {3, 2}, {0, 0, 2, 0, 2, 2})
        .Param("graph_score", std::string(score));
    Backward backward(builder.request());
    backward.d_results.values(0)[1] = kNan;
    backward.Run(builder.request());
    for (const auto& [name, values] : backward.gradients.ByName()) {
      for (const double x : values) EXPECT_TRUE(std::isfinite(x)) << name << " of " << score;
      if (name == "score_weight") continue;
      const size_t width = values.size() / 3;
      for (size_t d = width; d < 2 * width; ++d) EXPECT_EQ(values[d], 0) << name << " of " << score;
    }
  }
}

}  // namespace
}  // namespace heed::testing
