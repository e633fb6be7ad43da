// The plan of a recurrent call on the device, made on the host. No CUDA here.
#ifndef HEED_SRC_CUDA_RECURRENT_PLAN_H_
#define HEED_SRC_CUDA_RECURRENT_PLAN_H_

#include <cstdint>
#include <vector>

#include "heed/cuda.h"
#include "src/cuda/plan.h"
#include "src/cuda/recurrent_params.h"
#include "src/recurrent/problem.h"

namespace heed::cuda {

// Rows of a state that the threads of a column hold, and columns of a model that learns.
inline constexpr int64_t kMaxFeatures = 256;
inline constexpr int64_t kMaxModelDim = 4096;

// Refuses what the device path lacks, then validates everything but what the numbers of tensors
// are: they lie on the device. Throws Error.
RecurrentProblem ValidateInputsForDevice(const TensorView<const float>& q,
                                         const TensorView<const float>& k,
                                         const TensorView<const float>& v,
                                         RecurrentOptions options);

// The same, and the results, as RecurrentAttention() does.
RecurrentProblem ValidateRecurrentForDevice(TensorView<const float> q, TensorView<const float> k,
                                            TensorView<const float> v,
                                            const RecurrentOptions& options,
                                            const RecurrentOutputs& outputs);

// The same of RecurrentStep(): a call of one token from the state to the state.
RecurrentProblem ValidateStepForDevice(TensorView<const float> q, TensorView<const float> k,
                                       TensorView<const float> v, const RecurrentOptions& options,
                                       TensorView<float> state, TensorView<float> output);

// Which kernel a call takes.
enum class RecurrentForm {
  kTokens,    // a state in registers
  kRandom,    // the same of random features
  kLevels,    // level_weights
  kLearning,  // mini_batch
};

class RecurrentPlan {
 public:
  explicit RecurrentPlan(const RecurrentProblem& p);

  RecurrentForm form() const { return form_; }
  int64_t num_blocks() const { return num_units_ * params_.col_blocks; }
  // The kernel's template argument: 4, 8 or 16 threads a column.
  int lanes() const;

  // States whose sums of keys are copied first; 0 when there is nothing to copy.
  int64_t num_copies() const;
  // Copied sums, or states that the caller does not want.
  int64_t scratch_floats() const;
  const std::vector<char>& host_arrays() const { return arrays_.bytes(); }

  // The parameters, given where copies of host_arrays() and scratch_floats() floats lie.
  RecurrentParams Params(const char* arrays, float* scratch) const;

 private:
  void SetForm(const RecurrentProblem& p);

  RecurrentForm form_ = RecurrentForm::kTokens;
  int64_t num_units_;  // batch * num_kv_heads
  int64_t state_rows_;
  RecurrentParams params_{};
  HostArrays arrays_;
  // Offsets in arrays_; -1: absent.
  int64_t skip_ = -1, lengths_ = -1, positions_ = -1, norm_weight_ = -1, norm_bias_ = -1,
          position_rate_ = -1;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_RECURRENT_PLAN_H_
