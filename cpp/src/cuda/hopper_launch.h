// Launches of the Hopper kernel. Each storage type is a file of its own, hopper_*.cu. Only in
// builds with CUDA.
#ifndef HEED_SRC_CUDA_HOPPER_LAUNCH_H_
#define HEED_SRC_CUDA_HOPPER_LAUNCH_H_

#include <cuda.h>

#include <algorithm>

#include "src/cuda/hopper_kernel.h"
#include "src/cuda/hopper_plan.h"
#include "src/cuda/runtime.h"
#include "src/cuda/tensor_map.h"
#include "src/cuda/warp_group.h"

namespace heed::cuda {

// Other architectures have neither wgmma nor setmaxnreg: there the kernel is a trap, which no
// launch meets (attention.cu).
template <class Shape>
__global__ void __launch_bounds__(Shape::Groups::kThreads, 1)
    HopperBlocks(const __grid_constant__ HopperParams params,
                 const __grid_constant__ CUtensorMap keys,
                 const __grid_constant__ CUtensorMap values) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char memory[];
  const uint32_t lead = -ptx::SharedAddress(memory) % kSwizzleBytes;
  using Group = DeviceWarpGroup<Shape::kConsumers>;
  Group group(memory + lead, Shape::kBytes);
  RunHopper<Group, Shape>(group, params, keys, values, blockIdx.x, gridDim.x);
#else
  __trap();
#endif
}

template <class Shape>
void LaunchHopperBlocks(const HopperPlan& plan, const HopperParams& params, const Device& device,
                        Stream stream) {
  constexpr int kBytes = Shape::kBytes + kExtraBytes + kSwizzleBytes;  // the last to align
  ThrowOnError(cudaFuncSetAttribute(HopperBlocks<Shape>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
               "setting the size of shared memory");
  const int64_t blocks = std::min(plan.num_items(), device.processors);
  HopperBlocks<Shape><<<static_cast<unsigned>(blocks), Shape::Groups::kThreads, kBytes, stream>>>(
      params, Encode(plan.keys()), Encode(plan.values()));
  ThrowOnError(cudaGetLastError(), "launching attention for Hopper");
}

// The kernel of the plan, whose element type is T.
template <class T>
void LaunchHopper(const HopperPlan& plan, const HopperParams& params, const Device& device,
                  Stream stream) {
  WithHopperKernel<T>(
      plan, [&](auto shape) { LaunchHopperBlocks<decltype(shape)>(plan, params, device, stream); });
}

extern template void LaunchHopper<Float16>(const HopperPlan&, const HopperParams&, const Device&,
                                           Stream);
extern template void LaunchHopper<BFloat16>(const HopperPlan&, const HopperParams&, const Device&,
                                            Stream);
extern template void LaunchHopper<Float8E4M3>(const HopperPlan&, const HopperParams&, const Device&,
                                              Stream);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_LAUNCH_H_
