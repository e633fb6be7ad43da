#include "src/cuda/step_checks.h"

#include "src/cuda/grid.h"
#include "src/cuda/plan.h"
#include "src/cuda/recurrent_plan.h"
#include "src/cuda/row_plan.h"

namespace heed::cuda {

char* StepChecks::AllocateBytes(size_t bytes) {
  const uintptr_t at = next_;
  next_ += (bytes + 255) / 256 * 256;
  return reinterpret_cast<char*>(at);
}

const char* StepChecks::Send(const char* /*data*/, size_t bytes) { return AllocateBytes(bytes); }

// On one processor keys are not split; on more they only are where blocks are few.
void StepChecks::Attend(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                        const AttentionOptions& options, const AttentionOutputs& outputs,
                        const SeenRules& seen) {
  DeviceProblem call = ValidateForDevice(q, k, v, options, outputs, {});
  call.seen = seen;
  if (!NeedsRows(call)) GridOf(AttentionPlan(call, 1, 1).num_blocks());
}

void StepChecks::Recur(const TensorView<const float>& q, const TensorView<const float>& k,
                       const TensorView<const float>& v, const RecurrentOptions& options,
                       const RecurrentOutputs& outputs) {
  GridOf(RecurrentPlan(ValidateRecurrentForDevice(q, k, v, options, outputs)).num_blocks());
}

void StepChecks::Run(const StepParams& step) { GridOf(BlocksOf(step)); }

}  // namespace heed::cuda
