// heed::RecurrentBackward: scheduling and dispatch to the best SIMD target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/recurrent/backward.cc"
#include <algorithm>
#include <memory>
#include <vector>

#include "heed/gradient.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/parallel/dry_run.h"
#include "src/recurrent/backward_loop-inl.h"
#include "src/recurrent/backward_problem.h"
#include "src/recurrent/backward_sums.h"
#include "src/recurrent/state_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// In a dry run allocates what it would, and no more.
void RunRecurrentBackward(const RecurrentBackwardProblem& g, ThreadPool& pool) {
  const RecurrentProblem& p = g.forward;
  SharedSums sums(g);
  const RecurrentPlan plan(p, PanelCols());
  const size_t chunks = BackwardScratch::NumChunks(plan);
  const size_t segments = (chunks + kSegmentChunks - 1) / kSegmentChunks;
  struct Worker {
    RecurrentScratch forward;
    BackwardScratch backward;
  };
  std::vector<std::unique_ptr<Worker>> workers;
  const int64_t tasks = p.batch * p.num_kv_heads;
  for (int w = 0; w < pool.NumThreads() && tasks > 0; ++w) {
    workers.push_back(
        std::make_unique<Worker>(Worker{RecurrentScratch(plan), BackwardScratch(plan, segments)}));
  }
  if (DryRun::Current() != nullptr) return;
  pool.Run(tasks, [&](int64_t task, int worker) {
    Worker& own = *workers[static_cast<size_t>(worker)];
    BackwardLoop(plan, g, task / p.num_kv_heads, task % p.num_kv_heads, own.forward, own.backward,
                 sums.Of(task))
        .Run();
  });
  sums.Write();
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(RunRecurrentBackward);

#ifndef HEED_TRAINING
HWY_EXPORT(SumRows);
HWY_EXPORT(MeetRows);
HWY_EXPORT(AddOuter);
HWY_EXPORT(StepRows);

void SumRows(const StateRows<const float>& rows, const float* factors, float* sum) {
  HWY_DYNAMIC_DISPATCH(SumRows)(rows, factors, sum);
}
void MeetRows(const StateRows<const float>& rows, const float* other, int64_t other_stride,
              float* dots) {
  HWY_DYNAMIC_DISPATCH(MeetRows)(rows, other, other_stride, dots);
}
void AddOuter(const float* factors, const float* other, const StateRows<float>& rows) {
  HWY_DYNAMIC_DISPATCH(AddOuter)(factors, other, rows);
}
void StepRows(const StateRows<const float>& from, const float* decays,
              std::span<const Outer> products, float* to) {
  HWY_DYNAMIC_DISPATCH(StepRows)(from, decays, products, to);
}
#endif

namespace {

void Run(const RecurrentBackwardProblem& g, ThreadPool& pool) {
  const RecurrentOptions& o = g.forward.options;
#ifndef HEED_TRAINING  // whose layers hold none of these rows
  if (o.erase_key.has_value()) return RunErasingBackward(g, pool);
  if (o.level_weights.has_value()) return RunLevelsBackward(g, pool);
  if (o.mini_batch > 0) return RunLearningBackward(g, pool);
#endif
  if (o.feature_map == FeatureMap::kRandom) return RunRandomBackward(g, pool);
  HWY_DYNAMIC_DISPATCH(RunRecurrentBackward)(g, pool);
}

}  // namespace

void RecurrentBackward(TensorView<const float> q, TensorView<const float> k,
                       TensorView<const float> v, TensorView<const float> d_out,
                       const RecurrentOptions& options, const RecurrentGradients& gradients,
                       ThreadPool* pool) {
  WithMemoryErrors("recurrent gradients", [&] {
    const RecurrentBackwardProblem problem =
        ValidateRecurrentBackward(q, k, v, d_out, options, gradients);
    Run(problem, pool != nullptr ? *pool : DefaultThreadPool());
  });
}

}  // namespace heed
#endif  // HWY_ONCE
