// The plan of a recurrent call on the device, made on the host. No CUDA here.
#ifndef HEED_SRC_CUDA_RECURRENT_PLAN_H_
#define HEED_SRC_CUDA_RECURRENT_PLAN_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "heed/cuda.h"
#include "src/cuda/plan.h"
#include "src/cuda/recurrent_params.h"
#include "src/recurrent/problem.h"

namespace heed::cuda {

// Rows of a state that the threads of a column hold.
inline constexpr int64_t kMaxFeatures = 256;

// Refuses what the device path lacks, then validates as RecurrentAttention() does. Throws Error.
RecurrentProblem ValidateRecurrentForDevice(TensorView<const float> q, TensorView<const float> k,
                                            TensorView<const float> v,
                                            const RecurrentOptions& options,
                                            const RecurrentOutputs& outputs);

// The same of RecurrentStep(): a call of one token from the state to the state.
RecurrentProblem ValidateStepForDevice(TensorView<const float> q, TensorView<const float> k,
                                       TensorView<const float> v, const RecurrentOptions& options,
                                       TensorView<float> state, TensorView<float> output);

class RecurrentPlan {
 public:
  explicit RecurrentPlan(const RecurrentProblem& p);

  int64_t num_blocks() const { return num_units_ * params_.col_blocks; }
  // The kernel's template argument: 4, 8 or 16 threads a column.
  int lanes() const;

  // States whose sums of keys are copied first; 0 when there is nothing to copy.
  int64_t num_copies() const;
  int64_t scratch_floats() const { return num_copies() * params_.features; }
  const std::vector<char>& host_arrays() const { return arrays_.bytes(); }

  // The parameters, given where copies of host_arrays() and scratch_floats() floats lie.
  RecurrentParams Params(const char* arrays, float* scratch) const;

 private:
  int64_t num_units_;  // batch * num_kv_heads
  RecurrentParams params_{};
  HostArrays arrays_;
  int64_t skip_ = -1, lengths_ = -1, positions_ = -1;  // offsets in arrays_; -1: absent
};

// Calls body(std::integral_constant<int, lanes>()) with the plan's threads a column.
template <class Body>
void WithLanes(const RecurrentPlan& plan, const Body& body) {
  if (plan.lanes() == 4) return body(std::integral_constant<int, 4>());
  if (plan.lanes() == 8) return body(std::integral_constant<int, 8>());
  body(std::integral_constant<int, 16>());
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_RECURRENT_PLAN_H_
