// heed::AttentionFree: scheduling and dispatch.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/compose/attention_free.cc"
#include "heed/attention_free.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/compose/attention_free-inl.h"
#include "src/compose/attention_free_problem.h"
#include "src/compose/rows.h"
#include "src/exact/attention_spans.h"
#include "src/exact/cost-inl.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/view_checks.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Rows of a task where every row looks at its keys anew. Without a bias one task has all rows of a
// head: each goes on where the one before it stopped.
inline constexpr int64_t kFreeRows = 16;

// Of the weighted sums. A row that goes on where the one before it stopped adds its new keys only.
double FreeFlops(const FreePlan& plan) {
  const AttentionProblem& p = plan.p.pairs;
  const double width = static_cast<double>(plan.p.q.shape[3]);
  if (!plan.goes_on) return 2 * width * PairsSeen(p, plan.keep);
  int64_t keys = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    KeyRange done = {0, 0};
    for (int64_t i = 0; i < p.q_len; ++i) {
      const KeyRange seen = VisibleKeys(p, b, i);
      if (seen.begin != done.begin || seen.end < done.end) done = {seen.begin, seen.begin};
      keys += std::max<int64_t>(0, seen.end - done.end);
      done.end = std::max(done.end, seen.end);
    }
  }
  return 2 * width * static_cast<double>(keys * p.num_heads);
}

void RunAttentionFreeLoop(const AttentionFreeProblem& p, ThreadPool& pool) {
  const FreePlan plan(p);
  const Extents& q = p.q.shape;
  if (q[0] * q[1] * q[2] * q[3] == 0) return;
  std::vector<std::unique_ptr<FreeScratch>> scratch;
  for (int w = 0; w < pool.NumThreads(); ++w) scratch.push_back(std::make_unique<FreeScratch>(p));
  if (DryRun* dry = DryRun::Current()) dry->AddFlops(FreeFlops(plan));
  const int64_t rows = plan.goes_on ? q[2] : kFreeRows;
  const int64_t blocks = (q[2] + rows - 1) / rows;
  pool.Run(q[0] * q[1] * blocks, [&](int64_t task, int worker) {
    const int64_t b = task / blocks / q[1], h = task / blocks % q[1];
    FreeLoop loop(plan, b, h, *scratch[static_cast<size_t>(worker)]);
    const int64_t first = task % blocks * rows;
    for (int64_t i = first; i < std::min(q[2], first + rows); ++i) loop.Run(i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(RunAttentionFreeLoop);

void AttentionFree(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                   const AttentionFreeOptions& options, TensorView<float> output,
                   ThreadPool* pool) {
  WithMemoryErrors("attention-free mixing", [&] {
    AttentionFreeProblem p = ValidateAttentionFree(q, k, v, options);
    CheckOutput("output", output, q.shape, "[batch, num_heads, q_len, head_dim]");
    OutputSpans({{"output", output}})
        .ApartFrom("q", q)
        .ApartFrom("k", k)
        .ApartFrom("v", v)
        .ApartFrom(options.attention);
    p.output = output;
    HWY_DYNAMIC_DISPATCH(RunAttentionFreeLoop)(p, PoolOrDefault(pool));
  });
}

}  // namespace heed
#endif  // HWY_ONCE
