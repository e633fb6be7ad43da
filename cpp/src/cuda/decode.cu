// The kernels of decode_kernel.h.
#include "src/cuda/block.h"
#include "src/cuda/decode_kernel.h"
#include "src/cuda/decode_launch.h"
#include "src/cuda/grid.h"

namespace heed::cuda {
namespace {

template <class T, int kDim, bool kPaged>
__global__ void __launch_bounds__(kBlockThreads, DecodeResidentOf(kDim))
    DecodeBlocks(const __grid_constant__ AttentionParams params) {
  extern __shared__ __align__(16) char memory[];
  DeviceBlock block(memory);
  DecodeKernel<DeviceBlock, T, kDim, kPaged>(block, params).Run(blockIdx.x);
}

template <class T>
void Launch(const AttentionPlan& plan, const AttentionParams& params, Stream stream) {
  WithDecodeShape(plan.shape().dim, params.k.table != nullptr, [&](auto columns, auto paged) {
    constexpr int kDim = decltype(columns)::value;
    constexpr bool kPaged = decltype(paged)::value;
    constexpr int kBytes = DecodeKernel<DeviceBlock, T, kDim, kPaged>::kSharedBytes;
    static_assert(kBytes <= 48 * 1024, "what a launch may have without asking");
    DecodeBlocks<T, kDim, kPaged>
        <<<GridOf(plan.num_blocks()), kBlockThreads, kBytes, stream>>>(params);
  });
}

}  // namespace

void LaunchDecoding(const AttentionPlan& plan, const AttentionParams& params, Stream stream) {
  if (plan.dtype() == DType::kFloat16) {
    Launch<Float16>(plan, params, stream);
  } else {
    Launch<BFloat16>(plan, params, stream);
  }
  ThrowOnError(cudaGetLastError(), "launching attention of single queries");
}

}  // namespace heed::cuda
