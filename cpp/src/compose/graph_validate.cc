// The boundary of graph attention, and the sorting of its edges.
#include <algorithm>
#include <string>

#include "src/compose/checks.h"
#include "src/compose/graph_problem.h"
#include "src/message.h"
#include "src/output_spans.h"

namespace heed {
namespace {

void CheckFeatures(GraphProblem& p) {
  CheckInput("q", p.q);
  CheckInput("k", p.k);
  CheckInput("v", p.v);
  const Extents& k = p.k.shape;
  CheckShape("k", k, {p.q.shape[0], k[1], k[2], p.q.shape[3]},
             "[batch, num_kv_heads, num_sources, head_dim], batch and head_dim as in q");
  CheckShape("v", p.v.shape, {k[0], k[1], k[2], p.v.shape[3]},
             "[batch, num_kv_heads, num_sources, head_dim_v], the first three as in k");
  const int64_t heads = p.q.shape[1];
  if (heads > 0 && (k[1] == 0 || heads % k[1] != 0)) {
    Fail(ErrorCode::kShape,
         "q has {} heads and k has {}; the first must be a multiple of the second", {heads, k[1]});
  }
  p.group = k[1] > 0 ? heads / k[1] : 0;
}

void CheckEdges(GraphProblem& p) {
  if (p.edges.size() % 2 != 0) {
    Fail(ErrorCode::kShape,
         "edges has {} numbers; expected [num_edges, 2], pairs of source and target",
         {p.edges.size()});
  }
  p.num_edges = static_cast<int64_t>(p.edges.size() / 2);
  const int64_t nodes[] = {p.k.shape[2], p.q.shape[2]};
  const char* names[] = {"source", "target"};
  for (size_t n = 0; n < p.edges.size(); ++n) {
    if (p.edges[n] >= 0 && p.edges[n] < nodes[n % 2]) continue;
    Fail(ErrorCode::kRange, "edges names {} {}; nodes lie in [0, {})",
         {names[n % 2], p.edges[n], nodes[n % 2]});
  }
}

void CheckScoreWeight(const GraphProblem& p) {
  CheckEnum("score", p.score, GraphScore::kGatV2);
  const bool gat = p.score == GraphScore::kGat;
  const int64_t expected = p.q.shape[1] * p.q.shape[3] * (gat ? 2 : 1);
  if (p.score_weight.size() != static_cast<size_t>(expected)) {
    Fail(ErrorCode::kShape, "score_weight has {} values; expected {}{}",
         {p.score_weight.size(), expected,
          (gat ? " (gat: num_heads x 2 head_dim)" : " (gatv2: num_heads x head_dim)")});
  }
  CheckAllFinite("score_weight", p.score_weight);
}

void CheckGraphOutputs(const GraphProblem& p) {
  const Extents rows = {p.q.shape[0], p.q.shape[1], p.q.shape[2], 1};
  const GraphOutputs& out = p.outputs;
  CheckOutput("output", out.output, {rows[0], rows[1], rows[2], p.v.shape[3]},
              "[batch, num_heads, num_targets, head_dim_v]");
  if (out.lse.has_value()) {
    CheckOutput("lse", out.lse, rows, "[batch, num_heads, num_targets, 1]");
  }
  if (out.weights.has_value()) {
    CheckOutput("weights", out.weights, {rows[0], rows[1], p.num_edges, 1},
                "[batch, num_heads, num_edges, 1]");
  }
  OutputSpans({{"output", out.output}, {"lse", out.lse}, {"weights", out.weights}})
      .ApartFrom("q", p.q)
      .ApartFrom("k", p.k)
      .ApartFrom("v", p.v)
      .ApartFrom("edges", p.edges)
      .ApartFrom("score_weight", p.score_weight);
}

}  // namespace

// Counting sort: stable, so that the edges of a node keep their order.
void SortEdges(std::span<const int32_t> edges, EdgeEnd end, int64_t num_nodes,
               ScratchVector<int64_t>& begin, ScratchVector<int64_t>& order) {
  const auto node = [&](size_t edge) {
    return static_cast<size_t>(edges[2 * edge + static_cast<size_t>(end)]);
  };
  begin.assign(static_cast<size_t>(num_nodes) + 1, 0);
  order.resize(edges.size() / 2);
  for (size_t e = 0; e < order.size(); ++e) ++begin[node(e) + 1];
  for (size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
  ScratchVector<int64_t> next(begin.begin(), begin.end() - 1);
  for (size_t e = 0; e < order.size(); ++e) {
    order[static_cast<size_t>(next[node(e)]++)] = static_cast<int64_t>(e);
  }
}

GraphProblem ValidateGraphInputs(TensorView<const float> q, TensorView<const float> k,
                                 TensorView<const float> v, std::span<const int32_t> edges,
                                 std::span<const float> score_weight, const GraphOptions& options) {
  GraphProblem p;
  p.q = q;
  p.k = k;
  p.v = v;
  p.edges = edges;
  p.score_weight = score_weight;
  p.score = options.score;
  p.negative_slope = static_cast<float>(options.negative_slope);
  CheckFeatures(p);
  CheckFinite("negative_slope", p.negative_slope);
  CheckScoreWeight(p);
  CheckEdges(p);
  SortEdges(p.edges, EdgeEnd::kTarget, p.q.shape[2], p.begin, p.order);
  for (size_t i = 1; i < p.begin.size(); ++i) {
    p.max_degree = std::max(p.max_degree, p.begin[i] - p.begin[i - 1]);
  }
  return p;
}

GraphProblem ValidateGraph(TensorView<const float> q, TensorView<const float> k,
                           TensorView<const float> v, std::span<const int32_t> edges,
                           std::span<const float> score_weight, const GraphOptions& options,
                           const GraphOutputs& outputs) {
  GraphProblem p = ValidateGraphInputs(q, k, v, edges, score_weight, options);
  p.outputs = outputs;
  CheckGraphOutputs(p);
  return p;
}

}  // namespace heed
