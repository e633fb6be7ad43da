// Graph attention: every node attends to the nodes that its edges come from.
#ifndef HEED_GRAPH_H_
#define HEED_GRAPH_H_

#include <cstdint>
#include <span>

#include "heed/error.h"
#include "heed/tensor.h"
#include "heed/thread_pool.h"

namespace heed {

// Largest error against the float64 reference, relative to max |v| over the sources of a node, for
// scores whose terms sum to 16 in absolute value, and in proportion beyond.
inline constexpr double kGraphMaxError = 2e-6;

// How the two ends of an edge become a number. w is score_weight of the head, q the target's
// features and k the source's.
enum class GraphScore {
  kGat,    // leaky_relu(w . [q; k]): 2 head_dim weights
  kGatV2,  // w . leaky_relu(q + k): head_dim weights
};

struct GraphOptions {
  GraphScore score = GraphScore::kGat;
  double negative_slope = 0.2;  // leaky_relu(x) = x for x >= 0, else negative_slope * x; finite
};

// Where results go. `output` is required, the others are computed when they have a value.
struct GraphOutputs {
  TensorView<float> output{};   // [batch, num_heads, num_targets, head_dim_v]
  TensorView<float> lse{};      // [batch, num_heads, num_targets, 1]; -inf for a node without edges
  TensorView<float> weights{};  // [batch, num_heads, num_edges, 1], in the order of `edges`
};

// Computes o[i] = sum over edges (j, i) of softmax(score(q[i], k[j])) v[j], the softmax over the
// edges that arrive at i. Features come projected: GAT is q = k = v = W h.
//
// Shapes   q [batch, num_heads, num_targets, head_dim]; k [batch, num_kv_heads, num_sources,
//          head_dim]; v [batch, num_kv_heads, num_sources, head_dim_v]; usually the targets are the
//          sources. Query head h uses KV head h / (num_heads / num_kv_heads). Strides are free, the
//          last dimension is contiguous.
// edges    [num_edges, 2], contiguous: (source, target). The same for every batch entry. An edge
//          listed twice counts twice; self-loops are not added.
// score_weight  [num_heads, 2 head_dim] (kGat: first the target's half) or [num_heads, head_dim]
//          (kGatV2), contiguous, finite.
// Empty row  a node that no edge arrives at has output 0, lse -inf. What no edge leaves from cannot
//          matter.
// Errors   Error(kShape | kRange | kOption | kMemory), before anything is written.
// Accuracy kGraphMaxError.
// Cost     O(batch * num_heads * num_edges * (head_dim + head_dim_v)), kGat without the head_dim.
//          Allocates O(num_edges + num_targets) for the sorted edges, num_edges floats at most per
//          thread, and for kGat one float per head and source.
// Threads  `pool` or the default pool. Same inputs give the same bits for any number of threads.
// Source   Velickovic et al. 2018, Graph Attention Networks, arXiv:1710.10903, equations 1 to 6;
//          Brody et al. 2022, How Attentive are Graph Attention Networks?, arXiv:2105.14491,
//          equation 7.
void GraphAttention(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                    std::span<const int32_t> edges, std::span<const float> score_weight,
                    const GraphOptions& options, const GraphOutputs& outputs,
                    ThreadPool* pool = nullptr);

}  // namespace heed

#endif  // HEED_GRAPH_H_
