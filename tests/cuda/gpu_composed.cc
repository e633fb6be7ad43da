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

void Finish(DeviceCopies& copies) {
  cuda::Check(nullptr);
  copies.Fetch();
}

}  // namespace

void RunLinformerOnDevice(TensorView<const float> q, TensorView<const float> k,
                          TensorView<const float> v, const LinformerOptions& options,
                          const AttentionOutputs& outputs) {
  DeviceCopies copies;
  LinformerOptions copied = options;
  copied.key_projection = copies.Copy(options.key_projection);
  copied.value_projection = copies.Copy(options.value_projection);
  cuda::Linformer(copies.Copy(q), copies.Copy(k), copies.Copy(v), copied,
                  CopiedOutputs(outputs, copies), nullptr);
  Finish(copies);
}

void RunEfficientOnDevice(TensorView<const float> q, TensorView<const float> k,
                          TensorView<const float> v, const EfficientOptions& options,
                          const AttentionOutputs& outputs) {
  DeviceCopies copies;
  cuda::EfficientAttention(copies.Copy(q), copies.Copy(k), copies.Copy(v), options,
                           CopiedOutputs(outputs, copies), nullptr);
  Finish(copies);
}

void RunMemoryCompressedOnDevice(TensorView<const float> q, TensorView<const float> k,
                                 TensorView<const float> v, const MemoryCompressedOptions& options,
                                 const AttentionOutputs& outputs) {
  DeviceCopies copies;
  MemoryCompressedOptions copied = options;
  copied.key_conv = copies.Copy(options.key_conv);
  copied.value_conv = copies.Copy(options.value_conv);
  cuda::MemoryCompressedAttention(copies.Copy(q), copies.Copy(k), copies.Copy(v), copied,
                                  CopiedOutputs(outputs, copies), nullptr);
  Finish(copies);
}

void RunNystromOnDevice(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const NystromOptions& options,
                        const NystromOutputs& outputs) {
  DeviceCopies copies;
  NystromOptions copied = options;
  copied.depthwise_conv = copies.Copy(options.depthwise_conv);
  cuda::NystromAttention(copies.Copy(q), copies.Copy(k), copies.Copy(v), copied,
                         {.output = copies.Copy(outputs.output),
                          .weights = copies.Copy(outputs.weights),
                          .residual = copies.Copy(outputs.residual)},
                         nullptr);
  Finish(copies);
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
  Finish(copies);
}

}  // namespace heed::testing
