// heed::cuda::RecurrentAttention and RecurrentStep: the kernels and the launches of a call.
#include "heed/cuda.h"
#include "src/cuda/block.h"
#include "src/cuda/grid.h"
#include "src/cuda/recurrent_choice.h"
#include "src/cuda/recurrent_launch.h"
#include "src/cuda/recurrent_plan.h"
#include "src/cuda/runtime.h"
#include "src/cuda/send.h"
#include "src/memory_errors.h"

namespace heed::cuda {
namespace {

template <class Kernel>
__global__ void __launch_bounds__(kBlockThreads)
    RecurrentBlocks(const __grid_constant__ RecurrentParams params) {
  extern __shared__ __align__(16) char memory[];
  DeviceBlock block(memory);
  Kernel(block, params).Run(blockIdx.x);
}

__global__ void __launch_bounds__(kBlockThreads)
    CopyStateSums(const __grid_constant__ RecurrentParams params) {
  DeviceBlock block(nullptr);
  CopySums(block, params, blockIdx.x);
}

}  // namespace

void LaunchTokens(const RecurrentProblem& problem, Stream stream) {
  CurrentDevice();  // throws without a usable one
  const RecurrentPlan plan(problem);
  if (plan.num_blocks() == 0) return;
  const unsigned blocks = GridOf(plan.num_blocks());
  const DeviceMemory arrays(plan.host_arrays().size(), stream);
  const DeviceMemory sums(static_cast<size_t>(plan.scratch_floats()) * sizeof(float), stream);
  SendArrays(plan.host_arrays(), arrays.get(), stream);
  const RecurrentParams params = plan.Params(arrays.get(), reinterpret_cast<float*>(sums.get()));
  if (plan.num_copies() > 0) {
    CopyStateSums<<<GridOf(plan.num_copies()), kBlockThreads, 0, stream>>>(params);
  }
  WithRecurrentKernel<DeviceBlock>(plan, [&](auto kernel) {
    using Kernel = typename decltype(kernel)::type;
    const int bytes = Kernel::SharedBytes(params);
    RecurrentBlocks<Kernel><<<blocks, kBlockThreads, bytes, stream>>>(params);
  });
  ThrowOnError(cudaGetLastError(), "launching recurrent attention");
}

void RecurrentAttention(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const RecurrentOptions& options,
                        const RecurrentOutputs& outputs, Stream stream) {
  WithMemoryErrors("recurrent attention", [&] {
    LaunchTokens(ValidateRecurrentForDevice(q, k, v, options, outputs), stream);
  });
}

void RecurrentStep(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                   const RecurrentOptions& options, TensorView<float> state,
                   TensorView<float> output, Stream stream) {
  WithMemoryErrors("a recurrent step", [&] {
    LaunchTokens(ValidateStepForDevice(q, k, v, options, state, output), stream);
  });
}

}  // namespace heed::cuda
