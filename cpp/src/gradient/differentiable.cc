// Which options have a gradient. Modules for the web that have no room for all of them refuse some
// that others have (HEED_FEW_GRADIENTS).
#include "src/gradient/problem.h"
#include "src/message.h"

namespace heed {
namespace {

// What backward_plugs.cc serves.
#ifdef HEED_FEW_GRADIENTS
[[noreturn]] void LeaveToGradients(const char* what) {
  Fail(ErrorCode::kUnsupported, "{} has no gradient in this build; heed/gradients has it", {what});
}
#else
void LeaveToGradients(const char* /*what*/) {}
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
      return LeaveToGradients("normalize \"kernel_sum\" with another kernel than gaussian");
    case Normalize::kCope:
      return LeaveToGradients("normalize \"cope\"");
  }
}

}  // namespace

void CompileSlopes([[maybe_unused]] const RequestReader& reader,
                   [[maybe_unused]] AttentionGradients& to) {
#ifndef HEED_FEW_GRADIENTS
  const auto slope = [&](const char* name, ExpressionValue value) -> TileFunction {
    const auto text = reader.Word(name);
    if (!text) return {};
    return CompileSlope(name, *text, value, reader.Named("captured"));
  };
  to.score_mod_slope = slope("score_mod", ExpressionValue::kScore);
  to.prob_mod_slope = slope("prob_mod", ExpressionValue::kProb);
#endif
}

void CheckIsDifferentiable(const AttentionOptions& o) {
  CheckNormalizeIsDifferentiable(o);
  if (o.score_mod) LeaveToGradients("score_mod");
  if (o.prob_mod) LeaveToGradients("prob_mod");
  if (o.score == Score::kAdditive) LeaveToGradients("score \"additive\"");
  if (o.relative_keys.has_value()) LeaveToGradients("relative_keys");
  if (o.relative_queries.has_value()) LeaveToGradients("relative_queries");
  if (o.relative_values.has_value()) LeaveToGradients("relative_values");
  if (o.content_bias.has_value()) LeaveToGradients("content_bias");
}

}  // namespace heed
