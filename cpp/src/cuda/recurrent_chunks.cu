// heed::cuda::RecurrentAttention of stored tensors: in chunks on tensor cores, or token by token on
// copies in float32.
#include "heed/cuda.h"
#include "src/cuda/block.h"
#include "src/cuda/chunk_kernels.h"
#include "src/cuda/chunk_plan.h"
#include "src/cuda/convert_kernel.h"
#include "src/cuda/gated_chunk_plan.h"
#include "src/cuda/grid.h"
#include "src/cuda/hopper_chunk_launch.h"
#include "src/cuda/hopper_path.h"
#include "src/cuda/recurrent_launch.h"
#include "src/cuda/runtime.h"
#include "src/cuda/send.h"
#include "src/memory_errors.h"

namespace heed::cuda {
namespace {

// Blocks share a multiprocessor: one waits for its tokens, others multiply.
template <class Kernel>
__global__ void __launch_bounds__(kBlockThreads, Kernel::kResident)
    ChunkBlocks(const __grid_constant__ ChunkParams params) {
  extern __shared__ __align__(16) char memory[];
  DeviceBlock block(memory);
  Kernel(block, params).Run(blockIdx.x);
}

__global__ void __launch_bounds__(kBlockThreads)
    SpanBlocks(const __grid_constant__ ChunkParams params) {
  DeviceBlock block(nullptr);
  ScanSpans(block, params, blockIdx.x);
}

__global__ void __launch_bounds__(kBlockThreads)
    ConvertBlocks(const __grid_constant__ ConvertParams params) {
  DeviceBlock block(nullptr);
  ConvertNumbers(block, params, blockIdx.x);
}

template <class Kernel>
void LaunchBlocks(const ChunkParams& params, int64_t blocks, Stream stream) {
  constexpr int kBytes = Kernel::kSharedBytes;
  static_assert(ShareOfHopper(Kernel::kResident, kBytes));
  ThrowOnError(cudaFuncSetAttribute(ChunkBlocks<Kernel>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
               "setting the size of shared memory");
  ChunkBlocks<Kernel><<<GridOf(blocks), kBlockThreads, kBytes, stream>>>(params);
  ThrowOnError(cudaGetLastError(), "launching recurrent attention in chunks");
}

void LaunchChunks(const StoredRecurrentProblem& call, Stream stream) {
  const Device device = CurrentDevice();
  if (TakesHopperChunks(call, device.processors, PathOn(device))) {
    return LaunchHopperChunks(call, stream);
  }
  const ChunkPlan plan(call, device.processors);
  const DeviceMemory arrays(plan.host_arrays().size(), stream);
  const DeviceMemory scratch(static_cast<size_t>(plan.scratch_floats()) * sizeof(float), stream);
  SendArrays(plan.host_arrays(), arrays.get(), stream);
  const ChunkParams params = plan.Params(arrays.get(), reinterpret_cast<float*>(scratch.get()));
  WithChunks(plan, [&](auto element, auto features) {
    using Element = typename decltype(element)::type;
    constexpr int kFeatures = decltype(features)::value;
    if (plan.num_sum_blocks() > 0) {
      LaunchBlocks<ChunkSums<DeviceBlock, Element, kFeatures>>(params, plan.num_sum_blocks(),
                                                               stream);
    }
    SpanBlocks<<<GridOf(plan.num_scan_blocks()), kBlockThreads, 0, stream>>>(params);
    LaunchBlocks<ChunkReads<DeviceBlock, Element, kFeatures>>(params, plan.num_read_blocks(),
                                                              stream);
  });
}

void Convert(const std::vector<ConvertParams>& conversions, Stream stream) {
  for (const ConvertParams& params : conversions) {
    ConvertBlocks<<<GridOf(NumBlocks(params)), kBlockThreads, 0, stream>>>(params);
  }
  ThrowOnError(cudaGetLastError(), "converting tensors of recurrent attention");
}

}  // namespace

void RecurrentAttention(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                        const RecurrentOptions& options, const StoredRecurrentOutputs& outputs,
                        Stream stream) {
  WithMemoryErrors("recurrent attention", [&] {
    const StoredRecurrentProblem call = ValidateStoredRecurrentForDevice(q, k, v, options, outputs);
    if (TakesChunks(call)) return LaunchChunks(call, stream);
    if (TakesGatedChunks(call)) return LaunchGatedChunks(call, stream);
    CurrentDevice();  // throws without a usable one
    const WideCall wide(call);
    const DeviceMemory scratch(static_cast<size_t>(wide.scratch_floats()) * sizeof(float), stream);
    float* const floats = reinterpret_cast<float*>(scratch.get());
    Convert(wide.Before(floats), stream);
    LaunchTokens(wide.On(floats), stream);
    Convert(wide.After(floats), stream);
  });
}

}  // namespace heed::cuda
