// The launches of gated chunks of recurrent attention.
#include "src/cuda/block.h"
#include "src/cuda/gated_chunk_kernels.h"
#include "src/cuda/gated_chunk_plan.h"
#include "src/cuda/gated_chunk_tokens.h"
#include "src/cuda/grid.h"
#include "src/cuda/recurrent_launch.h"
#include "src/cuda/runtime.h"
#include "src/cuda/send.h"

namespace heed::cuda {
namespace {

// Blocks that share a multiprocessor: kResident on Hopper, whose shared memory has room for four
// where others have it for three.
template <class Kernel>
constexpr int LeastBlocks() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  return Kernel::kResident < 3 ? Kernel::kResident : 3;
#else
  return Kernel::kResident;
#endif
}

template <class Kernel>
__global__ void __launch_bounds__(kBlockThreads, LeastBlocks<Kernel>())
    GatedBlocks(const __grid_constant__ GatedChunkParams params) {
  extern __shared__ __align__(16) char memory[];
  DeviceBlock block(memory);
  Kernel(block, params).Run(blockIdx.x);
}

__global__ void __launch_bounds__(kBlockThreads)
    GatedScanBlocks(const __grid_constant__ GatedChunkParams params) {
  extern __shared__ __align__(16) char memory[];
  DeviceBlock block(memory);
  if (params.delta) {
    ScanModels(block, params, blockIdx.x);
  } else {
    ScanStates(block, params, blockIdx.x);
  }
}

template <class Kernel>
void LaunchBlocks(const GatedChunkParams& params, int64_t blocks, Stream stream) {
  constexpr int kBytes = Kernel::kSharedBytes;
  static_assert(ShareOfHopper(Kernel::kResident, kBytes));
  if (blocks == 0) return;
  ThrowOnError(cudaFuncSetAttribute(GatedBlocks<Kernel>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
               "setting the size of shared memory");
  GatedBlocks<Kernel><<<GridOf(blocks), kBlockThreads, kBytes, stream>>>(params);
  ThrowOnError(cudaGetLastError(), "launching recurrent attention in gated chunks");
}

template <int kDim>
void LaunchSegment(const GatedChunkParams& params, Stream stream) {
  WithGatedTokens(params, [&](auto channels, auto delta) {
    using Tokens = GatedChunkTokens<DeviceBlock, kDim, channels.value, delta.value>;
    LaunchBlocks<Tokens>(params, NumTokenBlocks(params), stream);
  });
  LaunchBlocks<GatedSums<DeviceBlock, kDim>>(params, NumSumBlocks(params), stream);
  if (const int64_t blocks = NumScanBlocks(params); blocks > 0) {
    GatedScanBlocks<<<GridOf(blocks), kBlockThreads, kScanBytes, stream>>>(params);
  }
  LaunchBlocks<GatedReads<DeviceBlock, kDim>>(params, NumReadBlocks(params), stream);
}

}  // namespace

void LaunchGatedChunks(const StoredRecurrentProblem& call, Stream stream) {
  const GatedChunkPlan plan(call, CurrentDevice().processors);
  const DeviceMemory arrays(plan.host_arrays().size(), stream);
  const DeviceMemory scratch(static_cast<size_t>(plan.scratch_bytes()), stream);
  SendArrays(plan.host_arrays(), arrays.get(), stream);
  for (int64_t segment = 0; segment < plan.num_segments(); ++segment) {
    const GatedChunkParams params = plan.Params(segment, arrays.get(), scratch.get());
    WithGatedChunks(
        plan, [&](auto features) { LaunchSegment<decltype(features)::value>(params, stream); });
  }
}

}  // namespace heed::cuda
