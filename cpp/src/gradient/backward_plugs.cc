// Derivatives that native code, heed/gradients and heed/training have, and the other modules for
// the web have not.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/gradient/backward_plugs.cc"
#include <memory>
#include <utility>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/exact/additive_gradient-inl.h"
#include "src/exact/cope_gradient-inl.h"
#include "src/exact/kernel_sum_gradient-inl.h"
#include "src/exact/prob_mod_gradient-inl.h"
#include "src/exact/relative_gradient-inl.h"
#include "src/gradient/plan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

std::unique_ptr<ScoreGradient> MakeAdditiveGradient(const AttentionProblem& p) {
  return std::make_unique<AdditiveGradient>(p);
}

std::unique_ptr<ScoreGradient> MakeRelativeDotGradient(const AttentionProblem& p,
                                                       float packed_scale) {
  return std::make_unique<RelativeDotGradient>(p, packed_scale);
}

std::unique_ptr<ValueTermsGradient> MakeRelativeValuesGradient(const AttentionProblem& p) {
  return std::make_unique<RelativeValuesGradient>(p);
}

std::unique_ptr<RowGradient> MakeKernelSumGradient(const AttentionProblem& p) {
  return KernelGradientOf(p.options.kernel);
}

std::unique_ptr<RowGradient> MakeProbModGradient(const GradientProblem& g,
                                                 const NormalizeGradient* streaming,
                                                 std::unique_ptr<RowGradient> rows) {
  return std::make_unique<ProbModGradient>(g, streaming, std::move(rows));
}

std::unique_ptr<RowGradient> MakeCopeGradient(const AttentionProblem& p) {
  return std::make_unique<CopeGradient>(p);
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();
