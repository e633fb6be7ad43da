// What graph attention works on after validation: edges sorted by target. Plain data, no SIMD.
#ifndef HEED_SRC_COMPOSE_GRAPH_PROBLEM_H_
#define HEED_SRC_COMPOSE_GRAPH_PROBLEM_H_

#include <cstdint>
#include <span>
#include <vector>

#include "heed/graph.h"
#include "src/parallel/dry_run.h"

namespace heed {

struct GraphProblem {
  TensorView<const float> q, k, v;
  std::span<const int32_t> edges;  // [num_edges, 2]: source, target
  std::span<const float> score_weight;
  GraphScore score = GraphScore::kGat;
  float negative_slope = 0;
  GraphOutputs outputs;

  int64_t group = 1;  // query heads per KV head
  int64_t num_edges = 0;

  // The edges that arrive at node i are order[begin[i]] to order[begin[i + 1] - 1], ascending.
  ScratchVector<int64_t> begin;  // [num_targets + 1]
  ScratchVector<int64_t> order;  // [num_edges]
  int64_t max_degree = 0;
};

// Checks everything but the outputs and sorts the edges. Throws Error.
GraphProblem ValidateGraphInputs(TensorView<const float> q, TensorView<const float> k,
                                 TensorView<const float> v, std::span<const int32_t> edges,
                                 std::span<const float> score_weight, const GraphOptions& options);

// The same with outputs.
GraphProblem ValidateGraph(TensorView<const float> q, TensorView<const float> k,
                           TensorView<const float> v, std::span<const int32_t> edges,
                           std::span<const float> score_weight, const GraphOptions& options,
                           const GraphOutputs& outputs);

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_GRAPH_PROBLEM_H_
