// heed::cuda::Run: from the name of a mechanism to calls of the device. No CUDA here.
#ifndef HEED_SRC_CUDA_REQUEST_CALL_H_
#define HEED_SRC_CUDA_REQUEST_CALL_H_

#include <optional>
#include <span>
#include <vector>

#include "heed/request.h"
#include "src/cuda/composed_steps.h"
#include "src/exact/request.h"
#include "src/param_checks.h"
#include "src/recurrent/request.h"

namespace heed::cuda {

class RequestCall {
 public:
  // Reads and validates the request, which must outlive this. Throws Error.
  explicit RequestCall(const Request& request);

  const std::vector<OutputSpec>& outputs() const { return outputs_; }
  void Run(ComposedSteps& steps, std::span<const NamedTensor> outputs) const;

 private:
  void Recur(ComposedSteps& steps, std::span<const NamedTensor> outputs) const;

  const Request& request_;
  std::optional<AttentionRequest> exact_;
  std::optional<RecurrentRequest> recurrent_;  // neither: a row of steps
  std::vector<OutputSpec> outputs_;
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_REQUEST_CALL_H_
