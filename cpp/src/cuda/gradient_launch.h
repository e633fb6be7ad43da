// Launches of the kernels of attention backwards. Each storage type is a file of its own,
// gradient_*.cu: kernels take long to compile. Only in builds with CUDA.
#ifndef HEED_SRC_CUDA_GRADIENT_LAUNCH_H_
#define HEED_SRC_CUDA_GRADIENT_LAUNCH_H_

#include "src/cuda/block.h"
#include "src/cuda/gradient_bias_kernel.h"
#include "src/cuda/gradient_choice.h"
#include "src/cuda/gradient_plan.h"
#include "src/cuda/gradient_query_kernel.h"
#include "src/cuda/grid.h"
#include "src/cuda/runtime.h"

namespace heed::cuda {

// Kernel is one of the classes with Run(), kBytes and kResident: blocks that a multiprocessor
// should have room for. Told nothing, ptxas spilled a few registers to fit more (nvcc 13.0).
template <class Kernel>
__global__ void __launch_bounds__(kBlockThreads, Kernel::kResident)
    GradientBlocks(const __grid_constant__ GradientParams params) {
  extern __shared__ __align__(16) char memory[];
  DeviceBlock block(memory);
  Kernel(block, params).Run(blockIdx.x);
}

template <class Kernel>
void LaunchGradient(int64_t blocks, const GradientParams& params, Stream stream) {
  if (blocks == 0) return;
  ThrowOnError(cudaFuncSetAttribute(GradientBlocks<Kernel>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::kBytes),
               "setting the size of shared memory");
  GradientBlocks<Kernel><<<GridOf(blocks), kBlockThreads, Kernel::kBytes, stream>>>(params);
  ThrowOnError(cudaGetLastError(), "launching gradients of attention");
}

// Calls body.template operator()<Kernel>(blocks) for the kernels of the plan that take tiles.
template <class T, class Body>
void ForGradientKernels(const GradientPlan& plan, const Body& body) {
  WithGradientShape<T>(plan.dim(), [&](auto shape) {
    using Shape = decltype(shape);
    using QueryProducts = typename Shape::QueryProducts;
    body.template operator()<QueryGradientKernel<DeviceBlock, QueryProducts>>(
        plan.num_query_blocks());
    ForKeyKernels<Shape>(plan.params(), [&]<KeySums kSums>() {
      body.template operator()<KeyGradientKernel<DeviceBlock, typename Shape::KeyProducts, kSums>>(
          plan.num_key_blocks());
    });
    body.template operator()<BiasGradientKernel<DeviceBlock, QueryProducts>>(
        plan.num_bias_blocks(QueryProducts::kKeys));
  });
}

// Launches them; the element type is T.
template <class T>
void LaunchGradients(const GradientPlan& plan, const GradientParams& params, Stream stream) {
  ForGradientKernels<T>(
      plan, [&]<class Kernel>(int64_t blocks) { LaunchGradient<Kernel>(blocks, params, stream); });
}

extern template void LaunchGradients<float>(const GradientPlan&, const GradientParams&, Stream);
extern template void LaunchGradients<Float16>(const GradientPlan&, const GradientParams&, Stream);
extern template void LaunchGradients<BFloat16>(const GradientPlan&, const GradientParams&, Stream);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GRADIENT_LAUNCH_H_
