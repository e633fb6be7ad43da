// The packed, threaded matrix product on the register tile of attention.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/linear/gemm.cc"
#include "src/linear/gemm.h"

#include <algorithm>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/linear/gemm-inl.h"
#include "src/message.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

void RunGemm(const GemmProblem& problem, ThreadPool& pool) {
  const GemmPlan plan(problem, pool.NumThreads());
  if (plan.rows == 0 || plan.cols == 0 || plan.num_units == 0) return;
  if (DryRun* dry = DryRun::Current()) {
    dry->AddFlops(2.0 * static_cast<double>(plan.num_units) * static_cast<double>(plan.rows) *
                  static_cast<double>(plan.cols) * static_cast<double>(plan.depth));
  }
  GemmLoop(plan, pool).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {

HWY_EXPORT(RunGemm);

void Gemm(const GemmProblem& problem, ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(RunGemm)(problem, pool);
}

}  // namespace heed
#endif  // HWY_ONCE
