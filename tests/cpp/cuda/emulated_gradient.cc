// cuda::AttentionBackward() in emulated blocks.
#include <limits>
#include <vector>

#include "device_backend.h"
#include "gtest/gtest.h"
#include "host_block.h"
#include "src/cuda/gradient_bias_kernel.h"
#include "src/cuda/gradient_choice.h"
#include "src/cuda/gradient_plan.h"
#include "src/cuda/gradient_query_kernel.h"
#include "src/cuda/gradient_row_kernels.h"

namespace heed::testing {
namespace {

const int32_t* DataOf(const std::vector<int32_t>& array) {
  return array.empty() ? nullptr : array.data();
}

// Runs body(block, index) in `count` blocks of so much shared memory.
template <class Body>
void RunBlocks(int64_t count, int shared_bytes, const Body& body) {
  for (int64_t index = 0; index < count; ++index) {
    HostBlock block;
    body(block, index);
    ASSERT_EQ(block.complaint(), "") << "block " << index << " of " << count;
    ASSERT_EQ(block.shared_bytes(), shared_bytes);
  }
}

template <class Kernel>
void RunKernel(int64_t count, const cuda::GradientParams& params) {
  RunBlocks(count, Kernel::kBytes,
            [&](HostBlock& block, int64_t index) { Kernel(block, params).Run(index); });
}

template <class Shape>
void RunTiles(const cuda::GradientPlan& plan, const cuda::GradientParams& params) {
  using QueryProducts = typename Shape::QueryProducts;
  RunKernel<cuda::QueryGradientKernel<HostBlock, QueryProducts>>(plan.num_query_blocks(), params);
  cuda::ForKeyKernels<Shape>(plan.params(), [&]<cuda::KeySums kSums>() {
    RunKernel<cuda::KeyGradientKernel<HostBlock, typename Shape::KeyProducts, kSums>>(
        plan.num_key_blocks(), params);
  });
  RunKernel<cuda::BiasGradientKernel<HostBlock, QueryProducts>>(
      plan.num_bias_blocks(QueryProducts::kKeys), params);
}

}  // namespace

std::string RunGradientOnDevice(const DeviceGradientCall& call) {
  const cuda::DeviceArrays arrays = {DataOf(call.key_lengths), DataOf(call.query_documents),
                                     DataOf(call.key_documents)};
  const cuda::GradientPlan plan(cuda::ValidateGradientForDevice(call.q, call.k, call.v, call.out,
                                                                call.lse, call.d_out, call.options,
                                                                call.gradients, arrays));
  std::vector<float> scratch(static_cast<size_t>(plan.scratch_floats()),
                             std::numeric_limits<float>::quiet_NaN());
  cuda::Fault fault;
  const cuda::GradientParams params =
      plan.Params(plan.host_arrays().data(), scratch.data(), &fault);
  RunBlocks(plan.num_delta_blocks(), 0,
            [&](HostBlock& block, int64_t index) { cuda::FindDeltas(block, params, index); });
  cuda::WithElement(plan.dtype(), [&](auto element) {
    cuda::WithGradientShape<decltype(element)>(
        plan.dim(), [&](auto shape) { RunTiles<decltype(shape)>(plan, params); });
  });
  RunBlocks(plan.num_head_blocks(), cuda::kHeadSumBytes,
            [&](HostBlock& block, int64_t index) { cuda::SumHead(block, params, index); });
  return cuda::FaultText(fault);
}

}  // namespace heed::testing
