// The plan of AttentionBackward() on the device, made on the host: what is refused, how many blocks
// run, and the kernels' parameters. No CUDA here, so that all of it is tested everywhere.
#ifndef HEED_SRC_CUDA_GRADIENT_PLAN_H_
#define HEED_SRC_CUDA_GRADIENT_PLAN_H_

#include <cstdint>
#include <vector>

#include "heed/cuda.h"
#include "src/cuda/gradient_params.h"
#include "src/cuda/plan.h"
#include "src/gradient/problem.h"

namespace heed::cuda {

// A checked call.
struct DeviceGradient {
  GradientProblem problem;
  DeviceArrays arrays;
};

// The forward call that the gradients are of.
DeviceProblem AttentionOf(const DeviceGradient& call);

// Refuses what the device path lacks, then validates everything but what the numbers of tensors
// are: they lie on the device. Throws Error.
DeviceGradient ValidateGradientForDevice(const StoredTensor& q, const StoredTensor& k,
                                         const StoredTensor& v, const StoredTensor& out,
                                         const TensorView<const float>& lse,
                                         const StoredTensor& d_out, const AttentionOptions& options,
                                         const AttentionGradients& gradients,
                                         const DeviceArrays& arrays);

class GradientPlan {
 public:
  explicit GradientPlan(const DeviceGradient& call);

  DType dtype() const { return attention_.dtype(); }
  int dim() const { return attention_.shape().dim; }

  // Blocks of each kernel; 0 where nothing that it gives is wanted. That of the bias takes tiles of
  // `tile_keys` keys.
  int64_t num_delta_blocks() const;
  int64_t num_query_blocks() const;
  int64_t num_key_blocks() const;
  int64_t num_bias_blocks(int tile_keys) const;
  int64_t num_head_blocks() const;

  // What the device needs besides the tensors.
  const std::vector<char>& host_arrays() const { return attention_.host_arrays(); }
  int64_t scratch_floats() const;

  // The parameters as far as they are known before memory is taken.
  const GradientParams& params() const { return params_; }
  // The parameters, given where copies of host_arrays() and scratch_floats() floats lie.
  GradientParams Params(const char* arrays, float* scratch, Fault* fault) const;

 private:
  int64_t rows() const;  // of all heads and batch entries

  AttentionPlan attention_;
  GradientParams params_{};
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GRADIENT_PLAN_H_
