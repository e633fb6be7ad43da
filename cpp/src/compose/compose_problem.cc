#include "src/compose/compose_problem.h"

#include "src/message.h"
#include "src/view_checks.h"

namespace heed {

AttentionProblem ValidateComposed(const TensorView<const float>& q,
                                  const TensorView<const float>& k,
                                  const TensorView<const float>& v, const AttentionOptions& options,
                                  const AttentionOutputs& outputs) {
  if (outputs.stored_output.has_value()) {
    Fail(ErrorCode::kUnsupported,
         "stored_output is for Attention(); composed mechanisms write a float32 output");
  }
  return ValidateAttention(StoredTensor(q), StoredTensor(k), StoredTensor(v), options, outputs);
}

}  // namespace heed
