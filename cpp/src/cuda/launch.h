// Launches of the attention kernel. Each storage type is a file of its own, attention_*.cu: kernels
// take long to compile. Only in builds with CUDA.
#ifndef HEED_SRC_CUDA_LAUNCH_H_
#define HEED_SRC_CUDA_LAUNCH_H_

#include <algorithm>
#include <type_traits>

#include "src/cuda/attention_kernel.h"
#include "src/cuda/block.h"
#include "src/cuda/grid.h"
#include "src/cuda/kernel_choice.h"
#include "src/cuda/plan.h"
#include "src/cuda/runtime.h"
#include "src/message.h"

namespace heed::cuda {

// Blocks that a multiprocessor should have room for. Where the loop over tiles leaves registers for
// three, the merge behind it must not take them; ptxas told nothing (0) may give it all there are,
// or spill to fit one block more (CUDA C++ Programming Guide, Launch Bounds), which those of few
// rows did.
template <class Products>
constexpr int LeastBlocks() {
  constexpr bool kIsFloat = std::is_same_v<typename Products::Element, float>;
  constexpr int kResident = kAttentionResidentOf<Products>;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  // Of float32, shared memory of compute capability 8.0 has room for fewer.
  if (kIsFloat)
    return std::min<int>(kResident, (164 << 10) / (SharedBytes<Products>() + (1 << 10)));
#endif
  return kIsFloat || Products::kByKeys || kResident == 3 ? kResident : 0;
}

template <class Products>
__global__ void __launch_bounds__(kBlockThreads, LeastBlocks<Products>())
    AttentionBlocks(const __grid_constant__ AttentionParams params) {
  extern __shared__ __align__(16) char memory[];
  DeviceBlock block(memory);
  AttentionKernel<DeviceBlock, Products>(block, params).Run(blockIdx.x);
}

template <class Products>
void LaunchBlocks(const AttentionPlan& plan, const AttentionParams& params, const Device& device,
                  Stream stream) {
  constexpr int kBytes = SharedBytes<Products>();
  if (kBytes > device.shared_bytes) {
    Fail(ErrorCode::kUnsupported,
         "head_dim or head_dim_v up to {} in {} needs {} bytes of shared memory a block; this GPU "
         "has {}",
         {Products::kDim, DTypeName(plan.dtype()), kBytes, device.shared_bytes});
  }
  ThrowOnError(cudaFuncSetAttribute(AttentionBlocks<Products>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
               "setting the size of shared memory");
  AttentionBlocks<Products><<<GridOf(plan.num_blocks()), kBlockThreads, kBytes, stream>>>(params);
  ThrowOnError(cudaGetLastError(), "launching attention");
}

// The kernel of the plan, whose element type is T.
template <class T>
void LaunchAttention(const AttentionPlan& plan, const AttentionParams& params, const Device& device,
                     Stream stream) {
  WithProductsOf<T>(plan.shape(), [&](auto products) {
    LaunchBlocks<decltype(products)>(plan, params, device, stream);
  });
}

extern template void LaunchAttention<float>(const AttentionPlan&, const AttentionParams&,
                                            const Device&, Stream);
extern template void LaunchAttention<Float16>(const AttentionPlan&, const AttentionParams&,
                                              const Device&, Stream);
extern template void LaunchAttention<BFloat16>(const AttentionPlan&, const AttentionParams&,
                                               const Device&, Stream);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_LAUNCH_H_
