// What heed::cuda composes of several kernels, on tensors of the host: the low-rank family, and
// mechanisms by name.
#include "device_backend.h"
#include "gpu_backend.h"
#include "heed/cuda.h"

namespace heed::testing {
namespace {

AttentionOutputs CopiedOutputs(const AttentionOutputs& outputs, DeviceCopies& copies) {
  return {.output = copies.Copy(outputs.output),
          .lse = copies.Copy(outputs.lse),
          .weights = copies.Copy(outputs.weights)};
}

// function(copies, q, k, v), whose tensors are copies on the device.
template <class Function>
void OnDevice(const TensorView<const float>& q, const TensorView<const float>& k,
              const TensorView<const float>& v, const Function& function) {
  DeviceCopies copies;
  function(copies, copies.Copy(q), copies.Copy(k), copies.Copy(v));
  cuda::Check(nullptr);
  copies.Fetch();
}

}  // namespace

void RunLinformerOnDevice(TensorView<const float> q, TensorView<const float> k,
                          TensorView<const float> v, const LinformerOptions& options,
                          const AttentionOutputs& outputs) {
  OnDevice(q, k, v, [&](DeviceCopies& copies, const auto& q2, const auto& k2, const auto& v2) {
    LinformerOptions copied = options;
    copied.key_projection = copies.Copy(options.key_projection);
    copied.value_projection = copies.Copy(options.value_projection);
    cuda::Linformer(q2, k2, v2, copied, CopiedOutputs(outputs, copies), nullptr);
  });
}

void RunEfficientOnDevice(TensorView<const float> q, TensorView<const float> k,
                          TensorView<const float> v, const EfficientOptions& options,
                          const AttentionOutputs& outputs) {
  OnDevice(q, k, v, [&](DeviceCopies& copies, const auto& q2, const auto& k2, const auto& v2) {
    cuda::EfficientAttention(q2, k2, v2, options, CopiedOutputs(outputs, copies), nullptr);
  });
}

void RunMemoryCompressedOnDevice(TensorView<const float> q, TensorView<const float> k,
                                 TensorView<const float> v, const MemoryCompressedOptions& options,
                                 const AttentionOutputs& outputs) {
  OnDevice(q, k, v, [&](DeviceCopies& copies, const auto& q2, const auto& k2, const auto& v2) {
    MemoryCompressedOptions copied = options;
    copied.key_conv = copies.Copy(options.key_conv);
    copied.value_conv = copies.Copy(options.value_conv);
    cuda::MemoryCompressedAttention(q2, k2, v2, copied, CopiedOutputs(outputs, copies), nullptr);
  });
}

void RunNystromOnDevice(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const NystromOptions& options,
                        const NystromOutputs& outputs) {
  OnDevice(q, k, v, [&](DeviceCopies& copies, const auto& q2, const auto& k2, const auto& v2) {
    NystromOptions copied = options;
    copied.depthwise_conv = copies.Copy(options.depthwise_conv);
    cuda::NystromAttention(q2, k2, v2, copied,
                           {.output = copies.Copy(outputs.output),
                            .weights = copies.Copy(outputs.weights),
                            .residual = copies.Copy(outputs.residual)},
                           nullptr);
  });
}

void RunRequestOnDevice(const Request& request, std::span<const NamedTensor> outputs) {
  DeviceCopies copies;
  Request copied = request;
  for (NamedTensor& input : copied.inputs) {
    if (!cuda::IsHostInput(input.name)) input.tensor = copies.Copy(input.tensor);
  }
  std::vector<NamedTensor> results(outputs.begin(), outputs.end());
  for (NamedTensor& output : results) output.tensor = copies.Copy(output.tensor);
  cuda::Run(copied, results, nullptr);
  cuda::Check(nullptr);
  copies.Fetch();
}

}  // namespace heed::testing
