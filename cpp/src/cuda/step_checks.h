// The steps of a composed call, checked and not made: what one of them refuses is refused before
// the first one runs. No CUDA here.
#ifndef HEED_SRC_CUDA_STEP_CHECKS_H_
#define HEED_SRC_CUDA_STEP_CHECKS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/cuda/composed_steps.h"

namespace heed::cuda {

class StepChecks : public ComposedSteps {
 public:
  // Addresses of memory that does not exist, each its own.
  char* AllocateBytes(size_t bytes) override;
  const char* Send(const char* data, size_t bytes) override;
  void Release() override {}
  int64_t RoundsOf(int64_t rounds) const override { return std::min<int64_t>(rounds, 1); }

  void Attend(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
              const AttentionOptions& options, const AttentionOutputs& outputs,
              const SeenRules& seen) override;
  void Recur(const TensorView<const float>& q, const TensorView<const float>& k,
             const TensorView<const float>& v, const RecurrentOptions& options,
             const RecurrentOutputs& outputs) override;
  void Run(const StepParams& step) override;

 private:
  uintptr_t next_ = uintptr_t{1} << (8 * sizeof(uintptr_t) - 2);  // no tensor lies there
};

// Throws Error for what a step of the call would throw.
template <class Call>
void CheckEveryStep(const Call& call) {
  StepChecks steps;
  call.Run(steps);
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_STEP_CHECKS_H_
