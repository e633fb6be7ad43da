// heed::AttentionBackward: validation and dispatch to the best SIMD target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/gradient/gradient.cc"
#include "heed/gradient.h"

#include <algorithm>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/gradient/problem.h"
#include "src/gradient/run-inl.h"
#include "src/memory_errors.h"
#include "src/message.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Writes zeros; extents that broadcast have stride 0.
void Clear(const TensorView<float>& view) {
  const auto extent = [&](size_t axis) { return view.strides[axis] == 0 ? 1 : view.shape[axis]; };
  for (int64_t b = 0; b < extent(0); ++b) {
    for (int64_t h = 0; h < extent(1); ++h) {
      for (int64_t i = 0; i < extent(2); ++i) {
        if (extent(3) > 0) std::fill_n(&view(b, h, i, 0), extent(3), 0.0f);
      }
    }
  }
}

// Gradients that are sums over batch, queries or keys, of which there may be none.
void ClearSums(const AttentionGradients& to) {
  for (const TensorGradient& tensor : kTensorGradients) {
    if ((to.*tensor.gradient).has_value()) Clear(to.*tensor.gradient);
  }
  for (const VectorGradient& vector : kVectorGradients) {
    const std::span<float> sums = to.*vector.gradient;
    std::fill(sums.begin(), sums.end(), 0.0f);
  }
}

// In a dry run allocates what it would, and no more.
void RunGradient(const GradientProblem& problem, ThreadPool& pool) {
  const AttentionGradients& to = problem.gradients;
  const Plan plan = InRealMemory([&] { return Plan(problem.attention); });
  if (plan.num_units == 0) return ClearSums(to);
  const GradientPlan gradient = InRealMemory([&] { return GradientPlan(problem, plan); });
  GradientRun run(gradient, pool);
  ClearSums(to);  // once most is allocated
  if (DryRun::Current() == nullptr) run.Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(RunGradient);

void RunGradientProblem(const GradientProblem& problem, ThreadPool* pool) {
  HWY_DYNAMIC_DISPATCH(RunGradient)(problem, pool != nullptr ? *pool : DefaultThreadPool());
}

void AttentionBackward(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                       const StoredTensor& out, TensorView<const float> lse,
                       const StoredTensor& d_out, const AttentionOptions& options,
                       const AttentionGradients& gradients, ThreadPool* pool) {
  WithMemoryErrors("gradients of attention", [&] {
    RunGradientProblem(ValidateGradient(q, k, v, out, lse, d_out, options, gradients), pool);
  });
}

void AttentionBackward(TensorView<const float> q, TensorView<const float> k,
                       TensorView<const float> v, TensorView<const float> out,
                       TensorView<const float> lse, TensorView<const float> d_out,
                       const AttentionOptions& options, const AttentionGradients& gradients,
                       ThreadPool* pool) {
  AttentionBackward(StoredTensor(q), StoredTensor(k), StoredTensor(v), StoredTensor(out), lse,
                    StoredTensor(d_out), options, gradients, pool);
}

}  // namespace heed
#endif  // HWY_ONCE
