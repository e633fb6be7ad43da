// cuda::AttentionBackward() on the GPU.
#include <span>
#include <string>

#include "device_backend.h"
#include "gpu_backend.h"

namespace heed::testing {
namespace {

std::span<float> CopySpan(std::span<float> values, DeviceCopies& copies) {
  const int64_t size = static_cast<int64_t>(values.size());
  if (size == 0) return {};
  const TensorView<float> view = {values.data(), {1, 1, 1, size}, {size, size, size, 1}};
  return {copies.Copy(view).data, values.size()};
}

}  // namespace

std::string RunGradientOnDevice(const DeviceGradientCall& call) {
  DeviceCopies copies;
  AttentionOptions options = call.options;
  options.bias = copies.Copy(options.bias);
  options.keep = copies.Copy(options.keep);
  AttentionGradients to = call.gradients;
  to.d_lse = copies.Copy(to.d_lse);
  for (StoredOutput* gradient : {&to.d_q, &to.d_k, &to.d_v}) {
    if (gradient->has_value()) *gradient = copies.Copy(*gradient);
  }
  to.d_bias = copies.Copy(to.d_bias);
  to.d_alibi_slopes = CopySpan(to.d_alibi_slopes, copies);
  to.d_sinks = CopySpan(to.d_sinks, copies);
  const cuda::DeviceArrays arrays = {copies.Copy(call.key_lengths),
                                     copies.Copy(call.query_documents),
                                     copies.Copy(call.key_documents)};
  const HopperPath path(call.on_hopper);
  cuda::AttentionBackward(copies.Copy(call.q), copies.Copy(call.k), copies.Copy(call.v),
                          copies.Copy(call.out), copies.Copy(call.lse), copies.Copy(call.d_out),
                          options, to, nullptr, arrays);
  const std::string fault = FaultOfKernels();
  copies.Fetch();
  return fault;
}

}  // namespace heed::testing
