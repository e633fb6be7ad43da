#include <cuda.h>

#include "src/cuda/hopper_chunk_kernel.h"
#include "src/cuda/hopper_chunk_launch.h"
#include "src/cuda/send.h"
#include "src/cuda/tensor_map.h"
#include "src/cuda/warp_group.h"

namespace heed::cuda {
namespace {

// A trap on other architectures, as HopperBlocks is.
template <class Shape>
__global__ void __launch_bounds__(ChunkGroups::kThreads, 1)
    HopperChunkBlocks(const __grid_constant__ ChunkParams params,
                      const __grid_constant__ ChunkMaps<CUtensorMap> maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char memory[];
  const uint32_t lead = -ptx::SharedAddress(memory) % kSwizzleBytes;
  using Group = DeviceWarpGroup<ChunkGroups::kConsumers>;
  Group group(memory + lead, Shape::kBytes);
  RunHopperChunks<Group, Shape>(group, params, maps, static_cast<int32_t>(blockIdx.x));
#else
  __trap();
#endif
}

template <class Shape>
void LaunchBlocks(const HopperChunkPlan& plan, const ChunkParams& params, Stream stream) {
  constexpr int kBytes = Shape::kBytes + kExtraBytes + kSwizzleBytes;  // the last to align
  ThrowOnError(cudaFuncSetAttribute(HopperChunkBlocks<Shape>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
               "setting the size of shared memory");
  const ChunkMaps<TileMap>& maps = plan.maps();
  const ChunkMaps<CUtensorMap> encoded = {Encode(maps.q), Encode(maps.k), Encode(maps.v)};
  HopperChunkBlocks<Shape>
      <<<static_cast<unsigned>(plan.num_blocks()), ChunkGroups::kThreads, kBytes, stream>>>(
          params, encoded);
  ThrowOnError(cudaGetLastError(), "launching recurrent attention in chunks for Hopper");
}

}  // namespace

void LaunchHopperChunks(const StoredRecurrentProblem& call, Stream stream) {
  const HopperChunkPlan plan(call);
  const DeviceMemory arrays(plan.host_arrays().size(), stream);
  SendArrays(plan.host_arrays(), arrays.get(), stream);
  const ChunkParams params = plan.Params(arrays.get());
  WithHopperChunks(plan, [&](auto shape) { LaunchBlocks<decltype(shape)>(plan, params, stream); });
}

}  // namespace heed::cuda
