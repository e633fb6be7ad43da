// The schedule: every tile of every row belongs to one block, and splits fill the device.
#include "src/cuda/plan.h"

#include <vector>

#include "gtest/gtest.h"
#include "src/cuda/attention_kernel.h"
#include "src/cuda/schedule.h"

namespace heed::testing {
namespace {

using cuda::NumSplits;

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

TEST(DevicePlan, KeysAreSplitOnlyWhenBlocksAreFewAndTilesAreMany) {
  EXPECT_EQ(NumSplits(0, 1000, 132), 1);
  EXPECT_EQ(NumSplits(106, 1000, 132), 1);  // 80 % of the multiprocessors are busy
  EXPECT_EQ(NumSplits(8, 4, 132), 1);       // nothing to split
  EXPECT_EQ(NumSplits(1, 1000, 132), 109);  // the smallest count that fills 85 % of 97 %
  EXPECT_EQ(NumSplits(8, 1000, 132), 15);   // 120 of 132: 14 would be 84.8 %
  EXPECT_EQ(NumSplits(66, 1000, 132), 2);
  EXPECT_EQ(NumSplits(1, 6, 132), 6);  // a tile each
}

TEST(DevicePlan, SplitsNeverExceedTilesOrProcessors) {
  for (int64_t blocks = 1; blocks < 140; ++blocks) {
    for (const int64_t tiles : {1, 5, 20, 3000}) {
      const int64_t splits = NumSplits(blocks, tiles, 132);
      EXPECT_GE(splits, 1);
      EXPECT_LE(splits, tiles);
      EXPECT_LE(splits, 128);
    }
  }
}

TEST(DevicePlan, TheKernelIsTheSmallestThatHoldsBothWidths) {
  EXPECT_EQ(cuda::ShapeOf(DType::kFloat16, 64, 1).dim, 64);
  EXPECT_EQ(cuda::ShapeOf(DType::kFloat16, 64, 65).dim, 128);
  EXPECT_EQ(cuda::ShapeOf(DType::kFloat16, 129, 64).dim, 256);
  EXPECT_EQ(cuda::ShapeOf(DType::kFloat32, 256, 256).tile_keys, 32);
}

TEST(DevicePlan, SharedMemoryFitsTheSmallestDevice) {
  // 163 KiB a block on sm_80, the CUDA programming guide, table of compute capabilities.
  constexpr int kSm80 = 163 * 1024;
  EXPECT_LE((cuda::SharedBytes<cuda::FloatProducts<128, 32>>()), kSm80);
  EXPECT_LE((cuda::SharedBytes<cuda::FloatProducts<256, 32>>()), kSm80);
  EXPECT_LE((cuda::SharedBytes<cuda::MmaProducts<Float16, 256, 32>>()), kSm80);
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
