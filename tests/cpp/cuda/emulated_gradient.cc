// cuda::AttentionBackward() in emulated blocks.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "device_backend.h"
#include "gtest/gtest.h"
#include "host_block.h"
#include "host_warp_group.h"
#include "src/cuda/gradient_bias_kernel.h"
#include "src/cuda/gradient_choice.h"
#include "src/cuda/gradient_plan.h"
#include "src/cuda/gradient_query_kernel.h"
#include "src/cuda/gradient_row_kernels.h"
#include "src/cuda/hopper_gradient_kernel.h"
#include "src/cuda/hopper_gradient_plan.h"

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

template <class Shape>
void RunHopperBlocks(const cuda::HopperGradientPlan& plan, const cuda::GradientParams& params,
                     int64_t most_blocks) {
  const int64_t blocks = std::min(most_blocks, plan.num_items(Shape::kSums));
  const auto maps = plan.Maps(Shape::kSums, Shape::kTile);
  for (int64_t index = 0; index < blocks; ++index) {
    HostHopperBlock block(Shape::kBytes);
    const std::string complaint = block.Run([&](HostWarpGroup& group) {
      cuda::RunHopperGradient<HostWarpGroup, Shape>(group, params, maps, index, blocks);
    });
    ASSERT_EQ(complaint, "") << "block " << index << " of " << blocks;
  }
}

// What stands before and behind both kernels is that of the base path.
template <class T>
void RunHopperTiles(const cuda::DeviceGradient& problem, const cuda::GradientParams& base,
                    int64_t blocks) {
  ASSERT_TRUE(cuda::TakesHopperGradient(problem, cuda::TilePath::kHopper));
  const cuda::HopperGradientPlan plan(problem);
  std::vector<uint32_t> table(static_cast<size_t>(plan.table_words()), 0x7fffffffu);
  const cuda::GradientParams params = plan.Params(base, table.data());
  RunBlocks(plan.num_table_blocks(), cuda::kTableShared, [&](HostBlock& block, int64_t index) {
    cuda::RowTableKernel<HostBlock>(block, params).Run(index);
  });
  cuda::ForHopperGradients<T>(
      plan, [&](auto shape) { RunHopperBlocks<decltype(shape)>(plan, params, blocks); });
}

}  // namespace

std::string RunGradientOnDevice(const DeviceGradientCall& call) {
  const cuda::DeviceArrays arrays = {DataOf(call.key_lengths), DataOf(call.query_documents),
                                     DataOf(call.key_documents)};
  const cuda::DeviceGradient problem = cuda::ValidateGradientForDevice(
      call.q, call.k, call.v, call.out, call.lse, call.d_out, call.options, call.gradients, arrays);
  const cuda::GradientPlan plan(problem);
  std::vector<float> scratch(static_cast<size_t>(plan.scratch_floats()),
                             std::numeric_limits<float>::quiet_NaN());
  cuda::Fault fault;
  const cuda::GradientParams params =
      plan.Params(plan.host_arrays().data(), scratch.data(), &fault);
  RunBlocks(plan.num_delta_blocks(), 0,
            [&](HostBlock& block, int64_t index) { cuda::FindDeltas(block, params, index); });
  if (call.on_hopper && plan.dtype() == DType::kFloat16) {
    RunHopperTiles<Float16>(problem, params, call.hopper_blocks);
  } else if (call.on_hopper) {
    RunHopperTiles<BFloat16>(problem, params, call.hopper_blocks);
  } else {
    cuda::WithElement(plan.dtype(), [&](auto element) {
      cuda::WithGradientShape<decltype(element)>(
          plan.dim(), [&](auto shape) { RunTiles<decltype(shape)>(plan, params); });
    });
  }
  RunBlocks(plan.num_head_blocks(), cuda::kHeadSumBytes,
            [&](HostBlock& block, int64_t index) { cuda::SumHead(block, params, index); });
  return cuda::FaultText(fault);
}

}  // namespace heed::testing
