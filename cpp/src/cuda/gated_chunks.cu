// The launches of gated chunks of recurrent attention.
#include <algorithm>
#include <cstdint>
#include <optional>

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

// Blocks that share a multiprocessor: kResident on Hopper. Elsewhere as many of them as the shared
// memory of compute capability 8.0 has room for, but three: of four some spilled (nvcc 13.0).
template <class Kernel>
constexpr int LeastBlocks() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  constexpr int kRoom = (164 << 10) / (Kernel::kSharedBytes + (1 << 10));
  return std::min({Kernel::kResident, kRoom, 3});
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
void PrepareSegment(const GatedChunkParams& params, Stream stream) {
  WithGatedTokens(params, [&](auto channels, auto delta) {
    using Tokens = GatedChunkTokens<DeviceBlock, kDim, channels.value, delta.value>;
    LaunchBlocks<Tokens>(params, NumTokenBlocks(params), stream);
  });
}
template <int kDim>
void ReadSegment(const GatedChunkParams& params, Stream stream) {
  LaunchBlocks<GatedSums<DeviceBlock, kDim>>(params, NumSumBlocks(params), stream);
  if (const int64_t blocks = NumScanBlocks(params); blocks > 0) {
    GatedScanBlocks<<<GridOf(blocks), kBlockThreads, kScanBytes, stream>>>(params);
    ThrowOnError(cudaGetLastError(), "launching the states of spans");
  }
  LaunchBlocks<GatedReads<DeviceBlock, kDim>>(params, NumReadBlocks(params), stream);
}

// One segment is prepared on the stream of the call while that before it is read on another, whose
// blocks come first: they are as few as heads, and leave room on each multiprocessor. A captured
// call stays on its stream, as a stream that joins a capture cannot be given up before its end.
template <int kDim>
void LaunchSegments(const GatedChunkPlan& plan, const char* arrays, char* scratch, Stream stream) {
  std::optional<SideStream> side;
  if (plan.num_segments() > 1 && !IsCaptured(stream)) side.emplace(stream);
  PrepareSegment<kDim>(plan.Params(0, arrays, scratch), stream);
  for (int64_t segment = 0; segment < plan.num_segments(); ++segment) {
    if (side.has_value()) side->Follow();
    ReadSegment<kDim>(plan.Params(segment, arrays, scratch), side.has_value() ? side->get() : stream);
    // The next one replaces that before this, for which the stream has waited.
    if (segment + 1 < plan.num_segments()) {
      PrepareSegment<kDim>(plan.Params(segment + 1, arrays, scratch), stream);
    }
    if (side.has_value()) side->Rejoin();
  }
}

}  // namespace

void LaunchGatedChunks(const StoredRecurrentProblem& call, Stream stream,
                       int64_t max_prepared_bytes) {
  const GatedChunkPlan plan(call, CurrentDevice().processors, max_prepared_bytes);
  const DeviceMemory arrays(plan.host_arrays().size(), stream);
  const DeviceMemory scratch(static_cast<size_t>(plan.scratch_bytes()), stream);
  SendArrays(plan.host_arrays(), arrays.get(), stream);
  WithGatedChunks(plan, [&](auto features) {
    LaunchSegments<decltype(features)::value>(plan, arrays.get(), scratch.get(), stream);
  });
}

}  // namespace heed::cuda
