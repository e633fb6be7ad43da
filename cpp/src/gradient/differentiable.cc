// Which options have a gradient. Modules for the web that have no room for all of them refuse some
// that others have (HEED_FEW_GRADIENTS).
#include "heed/registry.h"
#include "src/gradient/problem.h"
#include "src/message.h"
#include "src/request_reader.h"

namespace heed {
namespace {

[[noreturn]] void Refuse(const char* what) {
  Fail(ErrorCode::kUnsupported, "{} has no gradient in heed", {what});
}

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

TileFunction ScoreModSlope([[maybe_unused]] const Request& request) {
#ifndef HEED_FEW_GRADIENTS
  const RequestReader reader(*FindMechanism(request.id), request);
  if (const auto text = reader.Word("score_mod")) {
    return CompileSlope("score_mod", *text, reader.Named("captured"));
  }
#endif
  return {};
}

void CheckIsDifferentiable(const AttentionOptions& o) {
  CheckNormalizeIsDifferentiable(o);
  if (o.score_mod) LeaveToGradients("score_mod");
  if (o.prob_mod) Refuse("prob_mod");
  if (o.score == Score::kAdditive) LeaveToGradients("score \"additive\"");
  if (o.relative_keys.has_value()) LeaveToGradients("relative_keys");
  if (o.relative_queries.has_value()) LeaveToGradients("relative_queries");
  if (o.relative_values.has_value()) LeaveToGradients("relative_values");
  if (o.content_bias.has_value()) LeaveToGradients("content_bias");
}

}  // namespace heed
