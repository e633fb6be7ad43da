// Launches of the gradient kernels for Hopper. Each storage type is a file of its own,
// hopper_gradient_*.cu. Only in builds with CUDA.
#ifndef HEED_SRC_CUDA_HOPPER_GRADIENT_LAUNCH_H_
#define HEED_SRC_CUDA_HOPPER_GRADIENT_LAUNCH_H_

#include <cuda.h>

#include <algorithm>

#include "src/cuda/hopper_gradient_kernel.h"
#include "src/cuda/hopper_gradient_plan.h"
#include "src/cuda/runtime.h"
#include "src/cuda/tensor_map.h"
#include "src/cuda/warp_group.h"

namespace heed::cuda {

// A trap on other architectures, as HopperBlocks is.
template <class Shape>
__global__ void __launch_bounds__(GradientGroups::kThreads, 1)
    HopperGradientBlocks(const __grid_constant__ GradientParams params,
                         const __grid_constant__ GradientMaps<CUtensorMap> maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char memory[];
  const uint32_t lead = -ptx::SharedAddress(memory) % kSwizzleBytes;
  using Group = DeviceWarpGroup<GradientGroups::kConsumers>;
  Group group(memory + lead, Shape::kBytes);
  RunHopperGradient<Group, Shape>(group, params, maps, blockIdx.x, gridDim.x);
#else
  __trap();
#endif
}

template <class Shape>
void LaunchHopperGradient(const HopperGradientPlan& plan, const GradientParams& params,
                          const Device& device, Stream stream) {
  if (plan.num_items(Shape::kSums) == 0) return;
  constexpr int kBytes = Shape::kBytes + kExtraBytes + kSwizzleBytes;  // the last to align
  ThrowOnError(cudaFuncSetAttribute(HopperGradientBlocks<Shape>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
               "setting the size of shared memory");
  const GradientMaps<TileMap> maps = plan.Maps(Shape::kSums, Shape::kTile);
  const GradientMaps<CUtensorMap> encoded = {{Encode(maps.own[0]), Encode(maps.own[1])},
                                             {Encode(maps.tiles[0]), Encode(maps.tiles[1])}};
  const int64_t blocks = std::min(plan.num_items(Shape::kSums), device.processors);
  HopperGradientBlocks<Shape>
      <<<static_cast<unsigned>(blocks), GradientGroups::kThreads, kBytes, stream>>>(params,
                                                                                    encoded);
  ThrowOnError(cudaGetLastError(), "launching gradients of attention for Hopper");
}

// Both kernels of the plan, whose element type is T, behind its row table.
template <class T>
void LaunchHopperGradients(const HopperGradientPlan& plan, const GradientParams& params,
                           const Device& device, Stream stream) {
  ForHopperGradients<T>(plan, [&](auto shape) {
    LaunchHopperGradient<decltype(shape)>(plan, params, device, stream);
  });
}

extern template void LaunchHopperGradients<Float16>(const HopperGradientPlan&,
                                                    const GradientParams&, const Device&, Stream);
extern template void LaunchHopperGradients<BFloat16>(const HopperGradientPlan&,
                                                     const GradientParams&, const Device&, Stream);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_GRADIENT_LAUNCH_H_
