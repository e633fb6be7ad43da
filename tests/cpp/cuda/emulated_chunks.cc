// Recurrent attention of stored tensors, with emulated thread blocks.
#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "device_backend.h"
#include "emulated_tokens.h"
#include "gtest/gtest.h"
#include "host_block.h"
#include "host_warp_group.h"
#include "src/cuda/chunk_kernels.h"
#include "src/cuda/chunk_plan.h"
#include "src/cuda/convert_kernel.h"
#include "src/cuda/gated_chunk_kernels.h"
#include "src/cuda/gated_chunk_plan.h"
#include "src/cuda/gated_chunk_tokens.h"
#include "src/cuda/hopper_chunk_kernel.h"
#include "src/cuda/hopper_chunk_plan.h"

namespace heed::testing {
namespace {

// Calls body for 0 to count - 1 in the order that DeviceCall::block_order names.
template <class Body>
void EachInOrder(int64_t count, uint64_t order, const Body& body) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  if (order == 1) std::reverse(indices.begin(), indices.end());
  if (order > 1) std::shuffle(indices.begin(), indices.end(), std::mt19937_64(order));
  for (const int64_t index : indices) {
    body(index);
    if (::testing::Test::HasFatalFailure()) return;
  }
}
// The same of blocks.
template <class Body>
void RunInOrder(int64_t count, uint64_t order, const Body& body) {
  EachInOrder(count, order, [&](int64_t index) {
    HostBlock block;
    body(block, index);
    ASSERT_EQ(block.complaint(), "") << "block " << index;
  });
}

template <class Kernel, class Params>
void RunKernel(const Params& params, int64_t count, uint64_t order) {
  RunInOrder(count, order, [&](HostBlock& block, int64_t index) {
    Kernel(block, params).Run(index);
    EXPECT_EQ(block.shared_bytes(), Kernel::kSharedBytes);
  });
}

void RunChunks(const cuda::StoredRecurrentProblem& call, int64_t processors, uint64_t order) {
  const cuda::ChunkPlan plan(call, processors);
  std::vector<float> scratch(static_cast<size_t>(plan.scratch_floats()),
                             std::numeric_limits<float>::quiet_NaN());
  const cuda::ChunkParams params = plan.Params(plan.host_arrays().data(), scratch.data());
  cuda::WithChunks(plan, [&](auto element, auto features) {
    using Element = typename decltype(element)::type;
    constexpr int kFeatures = decltype(features)::value;
    RunKernel<cuda::ChunkSums<HostBlock, Element, kFeatures>>(params, plan.num_sum_blocks(), order);
    RunInOrder(plan.num_scan_blocks(), order,
               [&](HostBlock& block, int64_t index) { cuda::ScanSpans(block, params, index); });
    RunKernel<cuda::ChunkReads<HostBlock, Element, kFeatures>>(params, plan.num_read_blocks(),
                                                               order);
  });
}

void RunHopperChunks(const cuda::StoredRecurrentProblem& call, uint64_t order) {
  const cuda::HopperChunkPlan plan(call);
  const cuda::ChunkParams params = plan.Params(plan.host_arrays().data());
  cuda::WithHopperChunks(plan, [&](auto shape) {
    using Shape = decltype(shape);
    EachInOrder(plan.num_blocks(), order, [&](int64_t index) {
      HostHopperBlock block(Shape::kBytes, cuda::ChunkGroups::kConsumers);
      const std::string complaint = block.Run([&](HostWarpGroup& group) {
        cuda::RunHopperChunks<HostWarpGroup, Shape>(group, params, plan.maps(),
                                                    static_cast<int32_t>(index));
      });
      ASSERT_EQ(complaint, "") << "block " << index;
    });
  });
}

template <int kFeatures>
void PrepareSegment(const cuda::GatedChunkParams& params, uint64_t order) {
  cuda::WithGatedTokens(params, [&](auto channels, auto delta) {
    using Tokens = cuda::GatedChunkTokens<HostBlock, kFeatures, channels.value, delta.value>;
    RunKernel<Tokens>(params, cuda::NumTokenBlocks(params), order);
  });
}
template <int kFeatures>
void ReadSegment(const cuda::GatedChunkParams& params, uint64_t order) {
  RunKernel<cuda::GatedSums<HostBlock, kFeatures>>(params, cuda::NumSumBlocks(params), order);
  RunInOrder(cuda::NumScanBlocks(params), order, [&](HostBlock& block, int64_t index) {
    if (!params.delta) return cuda::ScanStates(block, params, index);
    cuda::ScanModels(block, params, index);
    EXPECT_EQ(block.shared_bytes(), cuda::kScanBytes);
  });
  RunKernel<cuda::GatedReads<HostBlock, kFeatures>>(params, cuda::NumReadBlocks(params), order);
}

// Segments are prepared as early as they may be.
void RunGatedChunks(const cuda::StoredRecurrentProblem& call, const EmulatedChunks& chunks) {
  const cuda::GatedChunkPlan plan(call, chunks.processors, chunks.prepared_bytes);
  // Of words of all ones, NaN in every type.
  std::vector<float> scratch(static_cast<size_t>(plan.scratch_bytes()) / sizeof(float),
                             std::bit_cast<float>(~0u));
  char* const bytes = reinterpret_cast<char*>(scratch.data());
  cuda::WithGatedChunks(plan, [&](auto features) {
    constexpr int kFeatures = decltype(features)::value;
    const auto params_of = [&](int64_t segment) {
      return plan.Params(segment, plan.host_arrays().data(), bytes);
    };
    int64_t prepared = 0;
    for (int64_t segment = 0; segment < plan.num_segments(); ++segment) {
      const int64_t end = std::min(segment + plan.buffers(), plan.num_segments());
      for (; prepared < end; ++prepared) {
        PrepareSegment<kFeatures>(params_of(prepared), chunks.order);
      }
      ReadSegment<kFeatures>(params_of(segment), chunks.order);
    }
  });
}

void Convert(const std::vector<cuda::ConvertParams>& conversions) {
  for (const cuda::ConvertParams& params : conversions) {
    RunInOrder(cuda::NumBlocks(params), 0, [&](HostBlock& block, int64_t index) {
      cuda::ConvertNumbers(block, params, index);
    });
  }
}

}  // namespace

void RunStoredRecurrentOnDevice(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                                const RecurrentOptions& options,
                                const cuda::StoredRecurrentOutputs& outputs,
                                const EmulatedChunks& chunks) {
  const cuda::StoredRecurrentProblem call =
      cuda::ValidateStoredRecurrentForDevice(q, k, v, options, outputs);
  if (chunks.on_hopper) {
    ASSERT_TRUE(cuda::TakesHopperChunks(call, 1, cuda::TilePath::kHopper));
    return RunHopperChunks(call, chunks.order);
  }
  if (cuda::TakesChunks(call)) return RunChunks(call, chunks.processors, chunks.order);
  if (cuda::TakesGatedChunks(call)) return RunGatedChunks(call, chunks);
  const cuda::WideCall wide(call);
  std::vector<float> scratch(static_cast<size_t>(wide.scratch_floats()),
                             std::numeric_limits<float>::quiet_NaN());
  Convert(wide.Before(scratch.data()));
  RunTokens(wide.On(scratch.data()));
  Convert(wide.After(scratch.data()));
}

}  // namespace heed::testing
