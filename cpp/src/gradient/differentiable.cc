// Which options have a gradient. Modules for the web that have no room for all of them refuse some
// that others have (HEED_FEW_GRADIENTS).
#include "src/gradient/problem.h"
#include "src/message.h"

namespace heed {
namespace {

[[noreturn]] void Refuse(const char* what) {
  Fail(ErrorCode::kUnsupported, "{} has no gradient in heed", {what});
}

// What backward_plugs.cc serves.
#ifdef HEED_FEW_GRADIENTS
[[noreturn]] void LeaveToTraining(const char* what) {
  Fail(ErrorCode::kUnsupported, "{} has no gradient in this build; heed/gradients has it", {what});
}
#else
void LeaveToTraining(const char* /*what*/) {}
#endif

void CheckNormalizeIsDifferentiable(const AttentionOptions& o) {
  switch (o.normalize) {
    case Normalize::kSoftmax:
    case Normalize::kSoftmax1:
    case Normalize::kSigmoid:
    case Normalize::kRelu:
    case Normalize::kReluSquared:
    case Normalize::kAverage:
    case Normalize::kHard:
    case Normalize::kStickBreaking:
    case Normalize::kTopK:
    case Normalize::kSparsemax:
    case Normalize::kEntmax15:
      return;
    case Normalize::kKernelSum:
      if (o.kernel == Kernel::kGaussian) return;
      Refuse("normalize \"kernel_sum\" with another kernel than gaussian");
    case Normalize::kCope:
      Refuse("normalize \"cope\"");
  }
}

}  // namespace

void CheckIsDifferentiable(const AttentionOptions& o) {
  CheckNormalizeIsDifferentiable(o);
  if (o.score_mod) Refuse("score_mod");
  if (o.prob_mod) Refuse("prob_mod");
  if (o.score == Score::kAdditive) LeaveToTraining("score \"additive\"");
  if (o.relative_keys.has_value()) LeaveToTraining("relative_keys");
  if (o.relative_queries.has_value()) LeaveToTraining("relative_queries");
  if (o.relative_values.has_value()) LeaveToTraining("relative_values");
  if (o.content_bias.has_value()) LeaveToTraining("content_bias");
}

}  // namespace heed
