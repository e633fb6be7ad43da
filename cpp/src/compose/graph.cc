// heed::GraphAttention: a row of edges per target node, softmax over it, weighted sum of sources.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/compose/graph.cc"
#include "heed/graph.h"

#include <algorithm>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/compose/graph_node-inl.h"
#include "src/compose/graph_problem.h"
#include "src/compose/rows.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/view_checks.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Targets of one task.
inline constexpr int64_t kNodesPerTask = 64;

// The source's half of a GAT score, once per head and source: [batch, num_heads, num_sources].
void FillSourceTerms(const GraphProblem& p, const TensorView<float>& terms, ThreadPool& pool) {
  const size_t width = static_cast<size_t>(p.q.shape[3]);
  ForEachRow(terms.shape, pool, [&](int64_t b, int64_t h, int64_t j) {
    const float* weight = p.score_weight.data() + (2 * static_cast<size_t>(h) + 1) * width;
    terms(b, h, j, 0) = Dot(weight, &p.k(b, h / p.group, j, 0), width);
  });
}

// Sums over the edges, and the dot products of the scores: of every edge, or of its two ends.
double GraphFlops(const GraphProblem& p) {
  const double width = static_cast<double>(p.q.shape[3]);
  double flops = static_cast<double>(p.num_edges * p.v.shape[3]);
  if (p.score == GraphScore::kGatV2) {
    flops += static_cast<double>(p.num_edges) * width;
  } else {
    int64_t reached = 0;
    for (size_t i = 1; i < p.begin.size(); ++i) reached += p.begin[i] > p.begin[i - 1];
    flops += static_cast<double>(reached + p.k.shape[2]) * width;
  }
  return 2 * static_cast<double>(p.q.shape[0] * p.q.shape[1]) * flops;
}

void RunGraphLoop(const GraphProblem& p, ThreadPool& pool) {
  const int64_t batch = p.q.shape[0], heads = p.q.shape[1], targets = p.q.shape[2];
  if (batch == 0 || heads == 0 || targets == 0) return;
  const bool gat = p.score == GraphScore::kGat;
  const OwnedTensor terms = gat ? OwnedTensor({batch, heads, p.k.shape[2], 1}) : OwnedTensor();
  std::vector<GraphScratch> scratch;
  for (int w = 0; w < pool.NumThreads(); ++w) scratch.emplace_back(p.max_degree);
  if (DryRun* dry = DryRun::Current()) dry->AddFlops(GraphFlops(p));
  if (gat) FillSourceTerms(p, terms.view(), pool);
  const int64_t blocks = (targets + kNodesPerTask - 1) / kNodesPerTask;
  pool.Run(batch * heads * blocks, [&](int64_t task, int worker) {
    const int64_t b = task / blocks / heads, h = task / blocks % heads;
    const int64_t first = task % blocks * kNodesPerTask;
    for (int64_t i = first; i < std::min(targets, first + kNodesPerTask); ++i) {
      NodeLoop(p, terms.view(), b, h, i, scratch[static_cast<size_t>(worker)]).Run();
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(RunGraphLoop);

void GraphAttention(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                    std::span<const int32_t> edges, std::span<const float> score_weight,
                    const GraphOptions& options, const GraphOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("graph attention", [&] {
    const GraphProblem problem = ValidateGraph(q, k, v, edges, score_weight, options, outputs);
    HWY_DYNAMIC_DISPATCH(RunGraphLoop)(problem, PoolOrDefault(pool));
  });
}

}  // namespace heed
#endif  // HWY_ONCE
