// What graph attention works on after validation: edges sorted by target. Plain data, no SIMD.
#ifndef HEED_SRC_COMPOSE_GRAPH_PROBLEM_H_
#define HEED_SRC_COMPOSE_GRAPH_PROBLEM_H_

#include <cstdint>
#include <span>
#include <vector>

#include "heed/graph.h"
#include "src/parallel/dry_run.h"
#include "src/request_reader.h"

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

// Which end of an edge.
enum class EdgeEnd : size_t { kSource = 0, kTarget = 1 };

// Sorts edges by one of their ends, as `begin` and `order` above have them.
void SortEdges(std::span<const int32_t> edges, EdgeEnd end, int64_t num_nodes,
               ScratchVector<int64_t>& begin, ScratchVector<int64_t>& order);

// A request of the row `graph`.
struct GraphRequest {
  TensorView<const float> q, k, v;
  std::span<const int32_t> edges;
  std::span<const float> score_weight;
  GraphOptions options;
};
GraphRequest ReadGraph(const RequestReader& reader);

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
