// heed::cuda::Attention: memory of the stream's pool, and the launches of a call.
#include <cuda_runtime.h>

#include <algorithm>

#include "heed/cuda.h"
#include "src/cuda/block.h"
#include "src/cuda/combine_kernel.h"
#include "src/cuda/launch.h"
#include "src/cuda/plan.h"
#include "src/cuda/row_launch.h"
#include "src/cuda/row_plan.h"
#include "src/cuda/runtime.h"
#include "src/cuda/send.h"

namespace heed::cuda {
namespace {

__global__ void __launch_bounds__(kBlockThreads)
    CombineRows(const __grid_constant__ AttentionParams params) {
  DeviceBlock block(nullptr);
  CombineRow(block, params, blockIdx.x);
}

void Launch(const DeviceProblem& call, Stream stream) {
  const Device device = CurrentDevice();
  if (NeedsRows(call)) return LaunchRows(call, device, stream);
  const AttentionPlan plan(call, device.processors);
  if (plan.IsEmpty()) return;
  GridOf(std::max(plan.num_blocks(), plan.num_merges()));  // refused before memory is taken
  const DeviceMemory arrays(plan.host_arrays().size(), stream);
  const DeviceMemory split(static_cast<size_t>(plan.split_floats()) * sizeof(float), stream);
  SendArrays(plan.host_arrays(), arrays.get(), stream);
  const AttentionParams params =
      plan.Params(arrays.get(), reinterpret_cast<float*>(split.get()), DeviceFault());
  WithElement(plan, [&](auto element) {
    LaunchAttention<decltype(element)>(plan, params, device, stream);
  });
  if (plan.num_merges() == 0) return;
  CombineRows<<<GridOf(plan.num_merges()), kBlockThreads, 0, stream>>>(params);
  ThrowOnError(cudaGetLastError(), "launching the merge of splits");
}

}  // namespace

void Attention(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
               const AttentionOptions& options, const AttentionOutputs& outputs, Stream stream,
               const DeviceArrays& arrays) {
  Launch(ValidateForDevice(q, k, v, options, outputs, arrays), stream);
}

void Attention(const StoredTensor& q, const PagedKeys& keys, const AttentionOptions& options,
               const AttentionOutputs& outputs, Stream stream, const DeviceArrays& arrays) {
  Launch(ValidateForDevice(q, keys, options, outputs, arrays), stream);
}

}  // namespace heed::cuda
