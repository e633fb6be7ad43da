// The kernels of calls that need whole rows, and their launches.
#include "src/cuda/block.h"
#include "src/cuda/grid.h"
#include "src/cuda/row_kernel.h"
#include "src/cuda/row_launch.h"
#include "src/cuda/row_plan.h"
#include "src/cuda/send.h"

namespace heed::cuda {
namespace {

__global__ void __launch_bounds__(kBlockThreads)
    AttentionRows(const __grid_constant__ RowParams params) {
  extern __shared__ __align__(16) char memory[];
  DeviceBlock block(memory);
  RowKernel<DeviceBlock>(block, params).Run(blockIdx.x);
}

__global__ void __launch_bounds__(kBlockThreads)
    ProjectKeys(const __grid_constant__ RowParams params) {
  DeviceBlock block(nullptr);
  ProjectKey(block, params, blockIdx.x);
}

}  // namespace

void LaunchRows(const DeviceProblem& call, const Device& device, Stream stream) {
  const RowPlan plan(call, device.processors);
  if (plan.IsEmpty()) return;
  const unsigned projections = GridOf(plan.num_projections());  // refused before memory is taken
  const DeviceMemory shared_arrays(plan.shared_arrays().size(), stream);
  const DeviceMemory row_arrays(plan.row_arrays().size(), stream);
  const DeviceMemory scratch(static_cast<size_t>(plan.scratch_floats()) * sizeof(float), stream);
  SendArrays(plan.shared_arrays(), shared_arrays.get(), stream);
  SendArrays(plan.row_arrays(), row_arrays.get(), stream);
  const RowParams params = plan.Params(shared_arrays.get(), row_arrays.get(),
                                       reinterpret_cast<float*>(scratch.get()), DeviceFault());
  if (projections > 0) ProjectKeys<<<projections, kBlockThreads, 0, stream>>>(params);
  const int bytes = RowScore<DeviceBlock>::SharedBytes(params);
  AttentionRows<<<GridOf(plan.num_slots()), kBlockThreads, bytes, stream>>>(params);
  ThrowOnError(cudaGetLastError(), "launching attention of rows");
}

}  // namespace heed::cuda
