#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <type_traits>
#include <vector>

#include "device_backend.h"
#include "emulated_tokens.h"
#include "gtest/gtest.h"
#include "host_block.h"
#include "host_warp_group.h"
#include "src/cuda/attention_kernel.h"
#include "src/cuda/combine_kernel.h"
#include "src/cuda/decode_kernel.h"
#include "src/cuda/decode_plan.h"
#include "src/cuda/hopper_kernel.h"
#include "src/cuda/hopper_plan.h"
#include "src/cuda/kernel_choice.h"
#include "src/cuda/plan.h"
#include "src/cuda/recurrent_choice.h"
#include "src/cuda/recurrent_plan.h"
#include "src/cuda/row_kernel.h"
#include "src/cuda/row_plan.h"

namespace heed::testing {
namespace {

// The numbers of `count` blocks in the order in which they run.
std::vector<int64_t> OrderOfBlocks(int64_t count, uint64_t order) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  if (order == 1) std::reverse(indices.begin(), indices.end());
  if (order > 1) std::shuffle(indices.begin(), indices.end(), std::mt19937_64(order));
  return indices;
}

template <class Products>
void RunBlocks(const cuda::AttentionPlan& plan, const cuda::AttentionParams& params,
               uint64_t order) {
  ASSERT_EQ(plan.shape().dim, Products::kDim);
  ASSERT_EQ(plan.shape().tile_keys, Products::kKeys);
  for (const int64_t index : OrderOfBlocks(plan.num_blocks(), order)) {
    HostBlock block;
    cuda::AttentionKernel<HostBlock, Products>(block, params).Run(index);
    ASSERT_EQ(block.complaint(), "") << "block " << index;
    ASSERT_EQ(block.shared_bytes(), cuda::SharedBytes<Products>());
  }
}

template <class T, int kDim, bool kPaged>
void RunDecoding(const cuda::AttentionPlan& plan, const cuda::AttentionParams& params,
                 uint64_t order) {
  for (const int64_t index : OrderOfBlocks(plan.num_blocks(), order)) {
    using Kernel = cuda::DecodeKernel<HostBlock, T, kDim, kPaged>;
    HostBlock block;
    Kernel(block, params).Run(index);
    ASSERT_EQ(block.complaint(), "") << "block " << index;
    ASSERT_EQ(block.shared_bytes(), Kernel::kSharedBytes);
  }
}

template <class T>
void RunTiles(const cuda::AttentionPlan& plan, const cuda::AttentionParams& params,
              uint64_t order) {
  if constexpr (!std::is_same_v<T, float>) {
    if (plan.shape().kernel == cuda::TileKernel::kDecoding) {
      const bool paged = params.k.table != nullptr;
      return cuda::WithDecodeShape(plan.shape().dim, paged, [&](auto columns, auto is_paged) {
        RunDecoding<T, decltype(columns)::value, decltype(is_paged)::value>(plan, params, order);
      });
    }
  }
  cuda::WithProductsOf<T>(
      plan.shape(), [&](auto products) { RunBlocks<decltype(products)>(plan, params, order); });
}

// Two blocks, each of which takes several items where there are many.
template <class Shape>
void RunHopperBlocks(const cuda::HopperPlan& plan, const cuda::HopperParams& params) {
  const int64_t blocks = std::min<int64_t>(2, plan.num_items());
  for (int64_t index = 0; index < blocks; ++index) {
    HostHopperBlock block(Shape::kBytes, Shape::kConsumers);
    const std::string complaint = block.Run([&](HostWarpGroup& group) {
      cuda::RunHopper<HostWarpGroup, Shape>(group, params, plan.keys(), plan.values(), index,
                                            blocks);
    });
    ASSERT_EQ(complaint, "") << "block " << index;
  }
}

std::string RunHopper(const cuda::DeviceProblem& problem, const cuda::AttentionPlan& base) {
  EXPECT_TRUE(cuda::TakesHopper(problem, base, cuda::TilePath::kHopper));
  const cuda::HopperPlan plan(problem);
  cuda::Fault fault;
  const cuda::HopperParams params =
      plan.Params(base.Params(base.host_arrays().data(), nullptr, nullptr, &fault));
  cuda::WithHopperElement(problem.problem.q.dtype, [&](auto element) {
    cuda::WithHopperKernel<decltype(element)>(
        plan, [&](auto shape) { RunHopperBlocks<decltype(shape)>(plan, params); });
  });
  return cuda::FaultText(fault);
}

const int32_t* DataOf(const std::vector<int32_t>& array) {
  return array.empty() ? nullptr : array.data();
}

cuda::DeviceProblem Validate(const DeviceCall& call) {
  cuda::DeviceArrays arrays = {DataOf(call.key_lengths), DataOf(call.query_documents),
                               DataOf(call.key_documents)};
  if (call.table.empty()) {
    arrays.q_scales = call.q_scales, arrays.k_scales = call.k_scales;
    arrays.v_scales = call.v_scales;
    return cuda::ValidateForDevice(call.q, call.k, call.v, call.options, call.outputs, arrays);
  }
  const cuda::PagedKeys keys = {call.k_pages,     call.v_pages,  call.table.data(),
                                call.table_width, call.k_scales, call.v_scales};
  return cuda::ValidateForDevice(call.q, keys, call.options, call.outputs, arrays);
}

std::string RunRows(const cuda::DeviceProblem& problem, int64_t processors) {
  const cuda::RowPlan plan(problem, processors);
  std::vector<float> scratch(static_cast<size_t>(plan.scratch_floats()),
                             std::numeric_limits<float>::quiet_NaN());
  cuda::Fault fault;
  const cuda::RowParams params =
      plan.Params(plan.shared_arrays().data(), plan.row_arrays().data(), scratch.data(), &fault);
  for (int64_t key = 0; key < plan.num_projections(); ++key) {
    HostBlock block;
    cuda::ProjectKey(block, params, key);
  }
  for (int64_t slot = 0; slot < plan.num_slots(); ++slot) {
    HostBlock block;
    cuda::RowKernel<HostBlock>(block, params).Run(slot);
    EXPECT_EQ(block.complaint(), "") << "slot " << slot;
    EXPECT_EQ(block.shared_bytes(), cuda::RowScore<HostBlock>::SharedBytes(params));
  }
  return cuda::FaultText(fault);
}

}  // namespace

void RunTokens(const RecurrentProblem& problem) {
  const cuda::RecurrentPlan plan(problem);
  std::vector<float> sums(static_cast<size_t>(plan.scratch_floats()),
                          std::numeric_limits<float>::quiet_NaN());
  const cuda::RecurrentParams params = plan.Params(plan.host_arrays().data(), sums.data());
  for (int64_t unit = 0; unit < plan.num_copies(); ++unit) {
    HostBlock block;
    cuda::CopySums(block, params, unit);
  }
  cuda::WithRecurrentKernel<HostBlock>(plan, [&](auto kernel) {
    using Kernel = typename decltype(kernel)::type;
    for (int64_t index = 0; index < plan.num_blocks(); ++index) {
      HostBlock block;
      Kernel(block, params).Run(index);
      EXPECT_EQ(block.complaint(), "") << "block " << index;
      EXPECT_EQ(block.shared_bytes(), Kernel::SharedBytes(params));
    }
  });
}

std::string RunOnDevice(const DeviceCall& call) {
  cuda::DeviceProblem problem = Validate(call);
  if (call.seen != nullptr) problem.seen = *call.seen;
  if (cuda::NeedsRows(problem)) return RunRows(problem, call.processors);
  const cuda::AttentionPlan plan(problem, call.processors, 1);
  if (call.on_hopper) return RunHopper(problem, plan);
  std::vector<float> split(static_cast<size_t>(plan.split_floats()),
                           std::numeric_limits<float>::quiet_NaN());
  std::vector<uint32_t> counters(static_cast<size_t>(plan.num_counters()), 0);
  const bool apart = call.merges_apart || counters.empty();
  EXPECT_FALSE(call.must_merge && apart) << "no splits for the last block to merge";
  cuda::Fault fault;
  const cuda::AttentionParams params = plan.Params(plan.host_arrays().data(), split.data(),
                                                   apart ? nullptr : counters.data(), &fault);
  cuda::WithElement(plan.dtype(), [&](auto element) {
    RunTiles<decltype(element)>(plan, params, call.block_order);
  });
  for (int64_t index = 0; apart && index < plan.num_merges(); ++index) {
    HostBlock block;
    cuda::CombineRow(block, params, index);
  }
  EXPECT_EQ(counters, std::vector<uint32_t>(counters.size(), 0)) << "counters are left at 0";
  return cuda::FaultText(fault);
}

void RunRecurrentOnDevice(TensorView<const float> q, TensorView<const float> k,
                          TensorView<const float> v, const RecurrentOptions& options,
                          const RecurrentOutputs& outputs) {
  RunTokens(cuda::ValidateRecurrentForDevice(q, k, v, options, outputs));
}

void RunStepOnDevice(TensorView<const float> q, TensorView<const float> k,
                     TensorView<const float> v, const RecurrentOptions& options,
                     TensorView<float> state, TensorView<float> output) {
  RunTokens(cuda::ValidateStepForDevice(q, k, v, options, state, output));
}

std::string WhyNoDevice() { return ""; }

}  // namespace heed::testing
