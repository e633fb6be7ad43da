// heed::cuda::Attention: scratch memory, and the launches of a call.
#include <cuda_runtime.h>

#include <algorithm>

#include "heed/cuda.h"
#include "src/cuda/attention_launch.h"
#include "src/cuda/block.h"
#include "src/cuda/combine_kernel.h"
#include "src/cuda/decode_launch.h"
#include "src/cuda/decode_plan.h"
#include "src/cuda/hopper_launch.h"
#include "src/cuda/hopper_path.h"
#include "src/cuda/launch.h"
#include "src/cuda/plan.h"
#include "src/cuda/row_launch.h"
#include "src/cuda/row_plan.h"
#include "src/cuda/runtime.h"
#include "src/cuda/send.h"
#include "src/cuda/split_plan.h"
#include "src/memory_errors.h"

namespace heed::cuda {
namespace {

__global__ void __launch_bounds__(kBlockThreads)
    MergeSplits(const __grid_constant__ AttentionParams params) {
  DeviceBlock block(nullptr);
  CombineRow(block, params, blockIdx.x);
}

void LaunchOnHopper(const DeviceProblem& call, const AttentionParams& params, const Device& device,
                    Stream stream) {
  const HopperPlan plan(call);
  WithHopperElement(call.problem.q.dtype, [&](auto element) {
    LaunchHopper<decltype(element)>(plan, plan.Params(params), device, stream);
  });
}

// Blocks of the call's kernel that share a multiprocessor.
int64_t ResidentBlocksOf(const DeviceProblem& call, const Device& device) {
  const KernelShape shape = ShapeOf(call);
  if (shape.kernel == TileKernel::kDecoding) return DecodeResidentOf(shape.dim);
  int64_t resident = 1;
  WithElement(call.problem.q.dtype, [&](auto element) {
    WithProductsOf<decltype(element)>(shape, [&](auto products) {
      resident = ResidentBlocks(kAttentionResidentOf<decltype(products)>,
                                SharedBytes<decltype(products)>(), device.shared_bytes);
    });
  });
  return resident;
}

}  // namespace

void LaunchAttention(const DeviceProblem& call, Stream stream) {
  const Device device = CurrentDevice();
  if (NeedsRows(call)) return LaunchRows(call, device, stream);
  const AttentionPlan plan(call, device.processors, ResidentBlocksOf(call, device));
  if (plan.IsEmpty()) return;
  const bool on_hopper = TakesHopper(call, plan, PathOn(device));
  if (!on_hopper) GridOf(std::max(plan.num_blocks(), plan.num_merges()));  // before memory is taken
  const DeviceMemory arrays(plan.host_arrays().size(), stream);
  SendArrays(plan.host_arrays(), arrays.get(), stream);
  if (on_hopper) {
    const AttentionParams params = plan.Params(arrays.get(), nullptr, nullptr, DeviceFault());
    return LaunchOnHopper(call, params, device, stream);
  }
  const DeviceMemory split(static_cast<size_t>(plan.split_floats()) * sizeof(float), stream);
  const AttentionParams params =
      plan.Params(arrays.get(), reinterpret_cast<float*>(split.get()),
                  CountersOf(stream, plan.num_counters()), DeviceFault());
  if (plan.shape().kernel == TileKernel::kDecoding) {
    LaunchDecoding(plan, params, stream);
  } else {
    WithElement(plan.dtype(), [&](auto element) {
      LaunchAttention<decltype(element)>(plan, params, device, stream);
    });
  }
  if (plan.num_merges() == 0 || params.counters != nullptr) return;
  MergeSplits<<<GridOf(plan.num_merges()), kBlockThreads, 0, stream>>>(params);
  ThrowOnError(cudaGetLastError(), "launching the merge of splits");
}

void Attention(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
               const AttentionOptions& options, const AttentionOutputs& outputs, Stream stream,
               const DeviceArrays& arrays) {
  WithMemoryErrors("attention", [&] {
    LaunchAttention(ValidateForDevice(q, k, v, options, outputs, arrays), stream);
  });
}

void Attention(const StoredTensor& q, const PagedKeys& keys, const AttentionOptions& options,
               const AttentionOutputs& outputs, Stream stream, const DeviceArrays& arrays) {
  WithMemoryErrors("attention", [&] {
    LaunchAttention(ValidateForDevice(q, keys, options, outputs, arrays), stream);
  });
}

}  // namespace heed::cuda
