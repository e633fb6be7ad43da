// The schedule: every tile of every row belongs to one block, and splits fill the device.
#include "src/cuda/plan.h"

#include <vector>

#include "attention_case.h"
#include "gtest/gtest.h"
#include "src/cuda/attention_kernel.h"
#include "src/cuda/float_products.h"
#include "src/cuda/hopper_layout.h"
#include "src/cuda/schedule.h"
#include "stored_buffer.h"

namespace heed::testing {
namespace {

TEST(DevicePlan, EveryPlaceIsVisitedOnceLaterRowsFirst) {
  constexpr int64_t kRowBlocks = 5, kUnits = 3;
  constexpr int32_t kSplits = 4;
  std::vector<int> visits(kRowBlocks * kUnits * kSplits, 0);
  int64_t last_row_block = kRowBlocks - 1;
  for (int64_t index = 0; index < kRowBlocks * kUnits * kSplits; ++index) {
    const cuda::BlockPlace place = cuda::PlaceOf(index, kRowBlocks, kUnits, kSplits);
    ASSERT_LT(place.split, kSplits);
    EXPECT_LE(place.row_block, last_row_block);
    last_row_block = place.row_block;
    ++visits.at(
        static_cast<size_t>((place.row_block * kUnits + place.unit) * kSplits + place.split));
  }
  EXPECT_EQ(visits, std::vector<int>(visits.size(), 1));
}

// Blocks that take one item after the other, as those of Hopper do, and whose rows see more keys
// the later they are, have as much to do as each other within a hundredth.
TEST(DevicePlan, CausalItemsAreSharedEvenly) {
  constexpr int32_t kBlocks = 132;
  for (const auto& [row_blocks, units] :
       {std::pair{64, 64}, {64, 32}, {128, 16}, {64, 16}, {128, 8}}) {
    const int32_t items = row_blocks * units;
    int64_t most = 0, all = 0;
    for (int32_t block = 0; block < kBlocks; ++block) {
      int64_t own = 0;
      for (int32_t round = 0; cuda::ItemOf(block, kBlocks, round) < items; ++round) {
        const int32_t item = cuda::ItemOf(block, kBlocks, round);
        own += cuda::PlaceOf(item, row_blocks, units, 1).row_block + 1;
      }
      most = std::max(most, own);
      all += own;
    }
    EXPECT_LE(100 * most * kBlocks, 101 * all) << row_blocks << " x " << units;
  }
}

TEST(DevicePlan, SplitsShareTheTilesOfARow) {
  for (const int32_t begin : {0, 1, 63, 64, 700}) {
    for (const int32_t end : {0, 64, 65, 1000}) {
      for (const int32_t splits : {1, 3, 40}) {
        int32_t next = begin < end ? begin / 64 : 0;
        for (int32_t s = 0; s < splits; ++s) {
          const cuda::TileSpan tiles = cuda::TilesOf(begin, end, 64, s, splits);
          EXPECT_EQ(tiles.begin, next);
          EXPECT_LE(tiles.begin, tiles.end);
          next = tiles.end;
        }
        EXPECT_EQ(next, begin < end ? (end - 1) / 64 + 1 : 0) << begin << " " << end;
      }
    }
  }
}

cuda::AttentionPlan PlanOf(AttentionCase c, int64_t processors, int64_t resident) {
  const StoredBuffer q(c.q, DType::kBFloat16, Layout::kDense),
      k(c.k, DType::kBFloat16, Layout::kDense), v(c.v, DType::kBFloat16, Layout::kDense);
  Buffer<float> output({c.sizes.batch, c.sizes.num_heads, c.sizes.q_len, c.sizes.head_dim_v},
                       Layout::kDense, 0);
  AttentionOutputs outputs;
  outputs.output = output.view();
  return {cuda::ValidateForDevice(q.view(), k.view(), v.view(), c.options(), outputs, {}),
          processors, resident};
}

AttentionCase Decoding(std::vector<int32_t> lengths) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 8,
                              .num_kv_heads = 2,
                              .q_len = 1,
                              .kv_len = 640,
                              .head_dim = 64,
                              .head_dim_v = 64});
  c.key_lengths = std::move(lengths);
  return c;
}

TEST(DevicePlan, DecodingIsSplitByTheLongestEntryOrByEachEntrysOwn) {
  const cuda::AttentionPlan whole = PlanOf(Decoding({}), 8, 2);
  EXPECT_EQ(whole.num_blocks(), 4 * 4);  // 4 units on 16 places
  EXPECT_EQ(whole.num_counters(), 4);
  EXPECT_EQ(whole.num_merges(), 16);
  EXPECT_EQ(whole.split_floats(), 16 * 4 * 66);
  EXPECT_FALSE(whole.FillsProcessors(4));
  EXPECT_FALSE(whole.FillsProcessors(6));
  EXPECT_TRUE(whole.FillsProcessors(7));
  EXPECT_EQ(PlanOf(Decoding({256, 256}), 8, 2).num_blocks(), 4);  // four tiles are not split
  const cuda::AttentionPlan ragged = PlanOf(Decoding({640, 64}), 8, 2);
  EXPECT_EQ(ragged.num_blocks(), 2 * 5 + 2 * 1);  // 16 places: parts of two tiles
  EXPECT_EQ(ragged.num_counters(), 4);
  EXPECT_EQ(PlanOf(Decoding({640, 600}), 1, 1).is_split(), false);
}

// 8 KV heads on 132 multiprocessors.
TEST(DevicePlan, EntriesOfNearlyEqualLengthsAreSplitAsEqualOnesAre) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 8,
                              .num_kv_heads = 8,
                              .q_len = 1,
                              .kv_len = 1024,
                              .head_dim = 64,
                              .head_dim_v = 64});
  EXPECT_EQ(PlanOf(c, 132, 2).num_blocks(), 256);
  c.key_lengths = {1024, 900};
  EXPECT_EQ(PlanOf(c, 132, 2).num_blocks(), 248);
}

TEST(DevicePlan, TheKernelIsTheSmallestThatHoldsBothWidths) {
  const auto shape = [](DType dtype, int64_t head_dim, int64_t head_dim_v, int64_t rows) {
    cuda::DeviceProblem call{};
    AttentionProblem& p = call.problem;
    p.q.dtype = dtype;
    p.head_dim = head_dim, p.head_dim_v = head_dim_v;
    p.group = 2, p.q_len = rows / 2;
    return cuda::ShapeOf(call);
  };
  EXPECT_EQ(shape(DType::kFloat16, 64, 1, 64).dim, 64);
  EXPECT_EQ(shape(DType::kFloat16, 64, 65, 64).dim, 128);
  EXPECT_EQ(shape(DType::kFloat16, 129, 64, 64).dim, 256);
  EXPECT_EQ(shape(DType::kFloat32, 256, 256, 64).tile_keys, 16);
  EXPECT_EQ(shape(DType::kFloat16, 256, 256, 64).tile_keys, 32);
  // Few rows: the warps share them.
  using enum cuda::TileKernel;
  EXPECT_EQ(shape(DType::kFloat16, 64, 64, 18).kernel, kByRows);
  EXPECT_EQ(shape(DType::kFloat16, 64, 64, 16).kernel, kByKeys);
  EXPECT_EQ(shape(DType::kFloat16, 256, 64, 16).kernel, kByRows);
  EXPECT_EQ(shape(DType::kFloat32, 64, 64, 16).kernel, kByRows);
}

TEST(DevicePlan, SharedMemoryFitsTheSmallestDevice) {
  // 163 KiB a block on sm_80, 99 on sm_86 and sm_89: the CUDA programming guide, table of compute
  // capabilities.
  constexpr int kSm80 = 163 * 1024;
  constexpr int kSm86 = 99 * 1024;
  EXPECT_LE((cuda::SharedBytes<cuda::FloatProducts<128, 32>>()), kSm86);
  EXPECT_LE((cuda::SharedBytes<cuda::FloatProducts<256, 16>>()), kSm86);
  EXPECT_LE((cuda::SharedBytes<cuda::MmaProducts<Float16, 256, 32>>()), kSm86);
  EXPECT_LE((cuda::SharedBytes<cuda::MmaProducts<Float16, 128, 64, true>>()), kSm80 / 2);
}

TEST(DevicePlan, HostArraysLieOneAfterTheOtherAligned) {
  cuda::HostArrays arrays;
  const std::vector<int32_t> three = {1, 2, 3};
  const std::vector<int64_t> one = {7};
  EXPECT_EQ(arrays.Add(std::span<const int32_t>(three)), 0);
  EXPECT_EQ(arrays.Add(std::span<const int32_t>()), -1);
  EXPECT_EQ(arrays.Add(std::span<const int64_t>(one)), 16);
  EXPECT_EQ(arrays.bytes().size(), 24u);
}

}  // namespace
}  // namespace heed::testing
