// Graph attention: against the oracle, its limits, and numbers from its definition.
#include "heed/graph.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Graph : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Graph);

// A graph with its features: owns everything.
struct GraphCase {
  AttentionCase nodes;  // q: targets, k and v: sources
  std::vector<int32_t> edges;
  std::vector<float> weight;
  bool gat = true;

  Request request() const {
    Request request = nodes.request();
    request.id = "graph";
    const int64_t count = static_cast<int64_t>(edges.size()) / 2;
    request.inputs.push_back(
        {"edges", {DType::kInt32, const_cast<int32_t*>(edges.data()), 2, {count, 2}, {2, 1}}});
    const int64_t width = nodes.sizes.head_dim * (gat ? 2 : 1);
    request.inputs.push_back({"score_weight",
                              {DType::kFloat32,
                               const_cast<float*>(weight.data()),
                               2,
                               {nodes.sizes.num_heads, width},
                               {width, 1}}});
    request.params.push_back({"graph_score", std::string(gat ? "gat" : "gatv2")});
    request.params.push_back({"return_lse", true});
    request.params.push_back({"return_weights", true});
    return request;
  }
};

GraphCase MakeGraph(const Sizes& sizes, int64_t num_edges, bool gat, uint64_t seed = 1,
                    Layout layout = Layout::kDense) {
  GraphCase c{.nodes = MakeCase(sizes, seed, layout), .edges = {}, .weight = {}, .gat = gat};
  Random random(seed + 7);
  for (int64_t e = 0; e < num_edges; ++e) {
    c.edges.push_back(static_cast<int32_t>(random.Integer(0, sizes.kv_len - 1)));
    c.edges.push_back(static_cast<int32_t>(random.Integer(0, sizes.q_len - 1)));
  }
  c.weight.resize(static_cast<size_t>(sizes.num_heads * sizes.head_dim * (gat ? 2 : 1)));
  for (float& x : c.weight) x = random.Normal() / 4;
  return c;
}

// Scores here stay below 16 in size: kGraphMaxError holds as it stands.
void ExpectGraphMatches(const GraphCase& c) {
  const Values expected = RunOracle(c.request());
  const Values actual = RunByName(c.request());
  double max_v = 0;
  for (const float x : c.nodes.v.Elements()) {
    if (std::isfinite(x)) max_v = std::max(max_v, std::abs(double{x}));
  }
  for (const auto& [name, values] : expected) {
    const double bound = kGraphMaxError * (name == "output" ? max_v : name == "lse" ? 8 : 1);
    const std::vector<float> floats(actual.at(name).begin(), actual.at(name).end());
    ExpectWithin(floats, values, std::vector<double>(values.size(), bound), name);
  }
}

TEST_P(Graph, MatchesReference) {
  for (const bool gat : {true, false}) {
    for (const int64_t dim : {1, 7, 33, 64}) {
      // 40 targets, 300 edges from 90 sources, grouped heads; some nodes have no edge, some pairs
      // have several.
      const Sizes sizes{.batch = 2,
                        .num_heads = 4,
                        .num_kv_heads = 2,
                        .q_len = 40,
                        .kv_len = 90,
                        .head_dim = dim,
                        .head_dim_v = dim + 5};
      ExpectGraphMatches(MakeGraph(sizes, 300, gat));
      ExpectGraphMatches(MakeGraph(sizes, 3, gat, 2, Layout::kPadded));
      ExpectGraphMatches(MakeGraph(sizes, 60, gat, 3, Layout::kReversed));
    }
  }
}

TEST_P(Graph, ManyEdgesAtOneNodeMatchReference) {
  for (const bool gat : {true, false}) {
    GraphCase c =
        MakeGraph({.q_len = 3, .kv_len = 700, .head_dim = 8, .head_dim_v = 20}, 2000, gat);
    for (size_t e = 0; e < 2000; e += 2) c.edges[2 * e + 1] = 1;
    ExpectGraphMatches(c);
  }
}

TEST_P(Graph, GivesTheNumbersOfItsDefinition) {
  // Node 0 hears from nodes 0, 1, 2. a = (0, 1): the score of an edge is LeakyReLU(k), slope 0.2:
  // ln 2, ln 3 and, from -5 ln 2, -ln 2. Weights 2 : 3 : 1/2.
  RequestBuilder builder("graph");
  const float ln2 = std::log(2.0f), ln3 = std::log(3.0f);
  builder.Floats("q", {1, 1, 3, 1}, {7, 7, 7})
      .Floats("k", {1, 1, 3, 1}, {ln2, ln3, -5 * ln2})
      .Floats("v", {1, 1, 3, 1}, {11, 22, 44})
      .Integers("edges", {4, 2}, {1, 0, 0, 0, 2, 0, 1, 2})
      .Floats("score_weight", {1, 2}, {0, 1})
      .Param("return_weights", true)
      .Param("return_lse", true);
  const Values values = RunByName(builder.request());
  ExpectAllNear(values.at("weights"), {3 / 5.5, 2 / 5.5, 0.5 / 5.5, 1}, 3e-7);
  ExpectAllNear(values.at("output"), {(22 + 66 + 22) / 5.5, 0, 22}, 1e-5);
  EXPECT_NEAR(values.at("lse")[0], std::log(5.5), 3e-7);
  EXPECT_EQ(values.at("lse")[1], -HUGE_VAL);
}

TEST_P(Graph, ReducesToScaledDotProductWithoutARamp) {
  // With a slope of 1 on a complete graph the target's half of the score cancels: every target
  // attends like a query that is the source's half of the weight.
  GraphCase c = MakeGraph({.q_len = 20, .kv_len = 20, .head_dim = 8, .head_dim_v = 9}, 0, true);
  for (int32_t j = 0; j < 20; ++j) {
    for (int32_t i = 0; i < 20; ++i) c.edges.insert(c.edges.end(), {j, i});
  }
  Request request = c.request();
  request.params.push_back({"negative_slope", 1.0});
  AttentionCase dot = c.nodes;
  dot.scalars.scale = 1.0;
  dot.q.ForEach([&](int64_t, int64_t h, int64_t, int64_t d, float& x) {
    x = c.weight[static_cast<size_t>(16 * h + 8 + d)];
  });
  const std::vector<float> plain = RunAttention(dot).output.Elements();
  ExpectAllNear(RunByName(request).at("output"), {plain.begin(), plain.end()}, 1e-5);
}

TEST_P(Graph, ReducesToAverageOfNeighboursWithZeroWeights) {
  GraphCase c = MakeGraph({.q_len = 4, .kv_len = 4, .head_dim = 3, .head_dim_v = 2}, 0, false);
  c.edges = {0, 1, 2, 1, 3, 1, 3, 0};
  std::fill(c.weight.begin(), c.weight.end(), 0.0f);
  const std::vector<double> output = RunByName(c.request()).at("output");
  for (int64_t d = 0; d < 2; ++d) {
    const auto& v = c.nodes.v;
    EXPECT_NEAR(output[static_cast<size_t>(2 + d)],
                (double{v(0, 0, 0, d)} + v(0, 0, 2, d) + v(0, 0, 3, d)) / 3, 1e-6);
    EXPECT_EQ(output[static_cast<size_t>(d)], v(0, 0, 3, d));
  }
}

// For each target of a complete graph, the source with the largest weight.
std::vector<size_t> Favourites(const GraphCase& c, size_t nodes) {
  const std::vector<double> weights = RunByName(c.request()).at("weights");
  std::vector<size_t> best(nodes, 0);
  for (size_t i = 0; i < nodes; ++i) {
    for (size_t j = 0; j < nodes; ++j) {
      if (weights[i * nodes + j] > weights[i * nodes + best[i]]) best[i] = j;
    }
  }
  return best;
}

TEST_P(Graph, GatRanksSourcesAlikeForEveryTargetAndGatV2DoesNot) {
  // Theorems 1 and 2 of Brody et al. 2022: GAT's attention is static, GATv2's is dynamic.
  for (const bool gat : {true, false}) {
    GraphCase c = MakeGraph(
        {.num_heads = 1, .num_kv_heads = 1, .q_len = 12, .kv_len = 12, .head_dim = 6}, 0, gat);
    for (int32_t i = 0; i < 12; ++i) {
      for (int32_t j = 0; j < 12; ++j) c.edges.insert(c.edges.end(), {j, i});
    }
    const std::vector<size_t> best = Favourites(c, 12);
    const bool alike = std::count(best.begin(), best.end(), best[0]) == 12;
    EXPECT_EQ(alike, gat);
  }
}

TEST_P(Graph, NodeWithoutEdgesIsZeroAndMinusInf) {
  const GraphCase c = MakeGraph({.q_len = 5, .kv_len = 5, .head_dim = 4, .head_dim_v = 4}, 0, true);
  const Values values = RunByName(c.request());
  for (const double x : values.at("output")) EXPECT_EQ(x, 0.0);
  for (const double x : values.at("lse")) EXPECT_EQ(x, -HUGE_VAL);
  EXPECT_TRUE(values.at("weights").empty());
}

TEST_P(Graph, NodesThatNobodyHearsMayBeAnything) {
  for (const bool gat : {true, false}) {
    GraphCase c = MakeGraph({.q_len = 30, .kv_len = 30, .head_dim = 4, .head_dim_v = 4}, 100, gat);
    for (size_t e = 0; e < 100; ++e) {
      if (c.edges[2 * e] == 17) c.edges[2 * e] = 16;
    }
    const Values clean = RunByName(c.request());
    for (int64_t d = 0; d < 4; ++d) c.nodes.k(0, 0, 17, d) = c.nodes.v(0, 1, 17, d) = kNan;
    EXPECT_EQ(RunByName(c.request()), clean);
    c.nodes.v(0, 0, 3, 2) = kNan;  // heard
    c.nodes.k(0, 1, 5, 1) = HUGE_VALF;
    c.nodes.q(0, 1, 9, 1) = kNan;
    ExpectGraphMatches(c);
  }
}

TEST_P(Graph, ThreadsChangeNoBit) {
  for (const bool gat : {true, false}) {
    const GraphCase c =
        MakeGraph({.batch = 2, .q_len = 300, .kv_len = 200, .head_dim = 20}, 3000, gat);
    Request request = c.request();
    request.params.pop_back();
    request.params.pop_back();  // lse: nodes without edges are equal to themselves, but be brief
    ExpectSameBitsForAnyThreads(request);
  }
}

TEST_P(Graph, OrderOfTheEdgesMovesOnlyTheWeights) {
  GraphCase c = MakeGraph({.q_len = 20, .kv_len = 20, .head_dim = 8}, 100, true);
  const Values before = RunByName(c.request());
  // Targets apart: every node keeps the order of its own edges.
  std::vector<std::pair<int32_t, int32_t>> pairs;
  for (size_t e = 0; e < 100; ++e) pairs.push_back({c.edges[2 * e], c.edges[2 * e + 1]});
  std::ranges::stable_sort(pairs, {}, [](const auto& pair) { return -pair.second; });
  for (size_t e = 0; e < 100; ++e) {
    c.edges[2 * e] = pairs[e].first;
    c.edges[2 * e + 1] = pairs[e].second;
  }
  const Values after = RunByName(c.request());
  EXPECT_EQ(after.at("output"), before.at("output"));
  EXPECT_EQ(after.at("lse"), before.at("lse"));
}

TEST_P(Graph, BadGraphsAreRefused) {
  const GraphCase good = MakeGraph({.q_len = 5, .kv_len = 6, .head_dim = 4}, 10, true);
  const auto refuse = [&](const auto& spoil, ErrorCode code, const std::string& name) {
    GraphCase c = good;
    spoil(c);
    ExpectBothRefuse(c.request(), code, name);
  };
  refuse([](GraphCase& c) { c.edges[0] = 6; }, ErrorCode::kRange, "edges");
  refuse([](GraphCase& c) { c.edges[0] = -1; }, ErrorCode::kRange, "edges");
  refuse([](GraphCase& c) { c.edges[1] = 5; }, ErrorCode::kRange, "edges");
  refuse([](GraphCase& c) { c.weight[3] = kNan; }, ErrorCode::kRange, "score_weight");
  Request flat = good.request();
  flat.inputs[3].tensor.rank = 1;
  flat.inputs[3].tensor.shape[0] = 20;
  flat.inputs[3].tensor.strides[0] = 1;
  ExpectBothRefuse(flat, ErrorCode::kShape, "edges");
  Request narrow = good.request();
  narrow.inputs[4].tensor.shape[1] = 4;
  ExpectBothRefuse(narrow, ErrorCode::kShape, "score_weight");
  Request word = good.request();
  word.params[0].value = std::string("gatv3");
  ExpectBothRefuse(word, ErrorCode::kOption, "graph_score");
  Request slope = good.request();
  slope.params.push_back({"negative_slope", HUGE_VAL});
  ExpectBothRefuse(slope, ErrorCode::kRange, "negative_slope");
}

}  // namespace
}  // namespace heed::testing
