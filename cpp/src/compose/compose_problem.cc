#include "src/compose/compose_problem.h"

#include "src/message.h"
#include "src/view_checks.h"

namespace heed {

void RefuseStoredOutput(const AttentionOutputs& outputs) {
  if (!outputs.stored_output.has_value()) return;
  Fail(ErrorCode::kUnsupported,
       "stored_output is for Attention(); composed mechanisms write a float32 output");
}

AttentionProblem ValidateComposed(const TensorView<const float>& q,
                                  const TensorView<const float>& k,
                                  const TensorView<const float>& v, const AttentionOptions& options,
                                  const AttentionOutputs& outputs) {
  RefuseStoredOutput(outputs);
  return ValidateAttention(StoredTensor(q), StoredTensor(k), StoredTensor(v), options, outputs);
}

void RefuseOtherWidths(const AttentionOptions& o, std::string_view who, std::string_view why) {
  const char* given = nullptr;
  if (o.relative_keys.has_value()) given = "relative_keys";
  if (o.relative_queries.has_value()) given = "relative_queries";
  if (o.relative_values.has_value()) given = "relative_values";
  if (o.content_bias.has_value()) given = "content_bias";
  if (o.position_bias.has_value()) given = "position_bias";
  if (o.normalize == Normalize::kCope) given = "cope";
  if (given == nullptr) return;
  Fail(ErrorCode::kUnsupported, "{}: {} does not offer it, as {}", {given, who, why});
}

void RefuseTiles(const AttentionOutputs& outputs, std::string_view who) {
  if (!outputs.running_max.has_value() && !outputs.running_sum.has_value() &&
      !outputs.rescale.has_value()) {
    return;
  }
  Fail(ErrorCode::kUnsupported,
       "running_max, running_sum and rescale: {} is not one softmax from tile to tile", {who});
}

}  // namespace heed
