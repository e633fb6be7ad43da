// heed::cuda::AttentionBackward: scratch memory, and the launches of a call.
#include "heed/cuda.h"
#include "src/cuda/block.h"
#include "src/cuda/gradient_launch.h"
#include "src/cuda/gradient_plan.h"
#include "src/cuda/gradient_row_kernels.h"
#include "src/cuda/hopper_gradient_launch.h"
#include "src/cuda/hopper_path.h"
#include "src/cuda/runtime.h"
#include "src/cuda/send.h"
#include "src/memory_errors.h"
#include "src/message.h"

namespace heed::cuda {
namespace {

__global__ void __launch_bounds__(kBlockThreads)
    DeltaBlocks(const __grid_constant__ GradientParams params) {
  DeviceBlock block(nullptr);
  FindDeltas(block, params, blockIdx.x);
}

__global__ void __launch_bounds__(kBlockThreads)
    HeadSumBlocks(const __grid_constant__ GradientParams params) {
  extern __shared__ __align__(16) char memory[];
  DeviceBlock block(memory);
  SumHead(block, params, blockIdx.x);
}

__global__ void __launch_bounds__(kBlockThreads)
    RowTableBlocks(const __grid_constant__ GradientParams params) {
  extern __shared__ __align__(16) char memory[];
  DeviceBlock block(memory);
  RowTableKernel<DeviceBlock>(block, params).Run(blockIdx.x);
}

// Throws Error(kUnsupported) where the device has no room for some kernel of the plan.
void CheckRoom(const GradientPlan& plan, const Device& device) {
  GridOf(plan.num_delta_blocks());
  WithElement(plan.dtype(), [&](auto element) {
    ForGradientKernels<decltype(element)>(plan, [&]<class Kernel>(int64_t blocks) {
      GridOf(blocks);
      if (blocks == 0 || Kernel::kBytes <= device.shared_bytes) return;
      Fail(ErrorCode::kUnsupported,
           "gradients of {} with head_dim or head_dim_v up to {} need {} bytes of shared memory a "
           "block; this GPU has {}",
           {DTypeName(plan.dtype()), plan.dim(), Kernel::kBytes, device.shared_bytes});
    });
  });
}

// The kernels that take tiles, on the base path.
void LaunchTiles(const GradientPlan& plan, const GradientParams& params, Stream stream) {
  WithElement(plan.dtype(),
              [&](auto element) { LaunchGradients<decltype(element)>(plan, params, stream); });
}

// Those for Hopper, behind their row table.
void LaunchTilesOnHopper(const DeviceGradient& call, const GradientParams& base,
                         const Device& device, Stream stream) {
  const HopperGradientPlan plan(call);
  const DeviceMemory table(static_cast<size_t>(plan.table_words()) * sizeof(uint32_t), stream);
  const GradientParams params = plan.Params(base, reinterpret_cast<uint32_t*>(table.get()));
  RowTableBlocks<<<GridOf(plan.num_table_blocks()), kBlockThreads, kTableShared, stream>>>(params);
  ThrowOnError(cudaGetLastError(), "launching the row table");
  if (call.problem.attention.q.dtype == DType::kFloat16) {
    LaunchHopperGradients<Float16>(plan, params, device, stream);
  } else {
    LaunchHopperGradients<BFloat16>(plan, params, device, stream);
  }
}

void Launch(const DeviceGradient& call, Stream stream) {
  const Device device = CurrentDevice();
  const GradientPlan plan(call);
  const bool on_hopper = TakesHopperGradient(call, PathOn(device));
  if (!on_hopper) CheckRoom(plan, device);
  const DeviceMemory arrays(plan.host_arrays().size(), stream);
  SendArrays(plan.host_arrays(), arrays.get(), stream);
  const DeviceMemory scratch(static_cast<size_t>(plan.scratch_floats()) * sizeof(float), stream);
  const GradientParams params =
      plan.Params(arrays.get(), reinterpret_cast<float*>(scratch.get()), DeviceFault());
  if (plan.num_delta_blocks() > 0) {
    DeltaBlocks<<<GridOf(plan.num_delta_blocks()), kBlockThreads, 0, stream>>>(params);
    ThrowOnError(cudaGetLastError(), "launching sums of rows");
  }
  if (on_hopper) {
    LaunchTilesOnHopper(call, params, device, stream);
  } else {
    LaunchTiles(plan, params, stream);
  }
  if (plan.num_head_blocks() == 0) return;
  HeadSumBlocks<<<GridOf(plan.num_head_blocks()), kBlockThreads, kHeadSumBytes, stream>>>(params);
  ThrowOnError(cudaGetLastError(), "launching sums of heads");
}

}  // namespace

void AttentionBackward(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                       const StoredTensor& out, TensorView<const float> lse,
                       const StoredTensor& d_out, const AttentionOptions& options,
                       const AttentionGradients& gradients, Stream stream,
                       const DeviceArrays& arrays) {
  WithMemoryErrors("gradients of attention", [&] {
    Launch(ValidateGradientForDevice(q, k, v, out, lse, d_out, options, gradients, arrays), stream);
  });
}

}  // namespace heed::cuda
