// How keys are split: by sizes, for batch entries of different lengths, and where blocks find
// theirs.
#include "src/cuda/split_plan.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "src/cuda/attention_kernel.h"
#include "src/cuda/float_products.h"
#include "src/cuda/schedule.h"
#include "src/cuda/stream_slots.h"

namespace heed::testing {
namespace {

using cuda::NumSplits;
using cuda::SplitStarts;

TEST(SplitPlan, KeysAreSplitOnlyWhenBlocksAreFewAndTilesAreMany) {
  EXPECT_EQ(NumSplits(0, 1000, 132), 1);
  EXPECT_EQ(NumSplits(106, 1000, 132), 1);  // 80 % of the places are taken
  EXPECT_EQ(NumSplits(8, 4, 132), 1);       // nothing to split
  EXPECT_EQ(NumSplits(1, 1000, 132), 125);  // the smallest count of parts of 8 tiles
  EXPECT_EQ(NumSplits(8, 1000, 132), 15);   // 67 tiles: 16 parts have 63, 14 have 72
  EXPECT_EQ(NumSplits(8, 16, 264), 16);     // 14 parts are two tiles long, as 8 are
  EXPECT_EQ(NumSplits(8, 64, 264), 32);     // two tiles; 33 would be no shorter
  EXPECT_EQ(NumSplits(66, 1000, 132), 2);
  EXPECT_EQ(NumSplits(1, 6, 132), 6);  // a tile each
}

TEST(SplitPlan, SplitsNeverExceedTilesOrPlaces) {
  for (int64_t blocks = 1; blocks < 140; ++blocks) {
    for (const int64_t tiles : {1, 5, 20, 3000}) {
      const int64_t splits = NumSplits(blocks, tiles, 132);
      EXPECT_GE(splits, 1);
      EXPECT_LE(splits, tiles);
      EXPECT_LE(splits, 128);
    }
  }
}

using Starts = std::vector<int32_t>;

TEST(SplitPlan, LongEntriesAreSplitMore) {
  // 33 parts for each of 8 blocks: three short entries leave 30, of 69 tiles at most.
  EXPECT_EQ(SplitStarts(std::vector<int64_t>{16, 2048, 16, 16}, 8, 264),
            (Starts{0, 1, 31, 32, 33}));
  EXPECT_EQ(SplitStarts(std::vector<int64_t>{0, 1}, 8, 264), (Starts{0, 1, 2}));
  // Parts of a tile at least, and 128 of them at most.
  EXPECT_EQ(SplitStarts(std::vector<int64_t>{40, 8}, 1, 264), (Starts{0, 40, 48}));
  EXPECT_EQ(SplitStarts(std::vector<int64_t>{100000, 8}, 1, 264), (Starts{0, 128, 129}));
}

// The longest part of an entry.
int64_t LongestPart(const std::vector<int64_t>& tiles, const Starts& starts) {
  int64_t longest = 0;
  for (size_t b = 0; b < tiles.size(); ++b) {
    const int64_t parts = starts[b + 1] - starts[b];
    longest = std::max(longest, (tiles[b] + parts - 1) / parts);
  }
  return longest;
}

TEST(SplitPlan, PartsOfEntriesAreOneWaveAndAsShortAsThatAllows) {
  const std::vector<std::vector<int64_t>> cases = {{110, 110, 110, 110, 110, 109},
                                                   {700, 90, 2048, 5, 333, 64},
                                                   {16, 2048, 16, 16},
                                                   {1000, 0, 0},
                                                   std::vector<int64_t>(33, 77)};
  for (const std::vector<int64_t>& tiles : cases) {
    const Starts starts = SplitStarts(tiles, 8, 264);
    EXPECT_LE(8 * starts.back(), 264);
    // Parts that are shorter by a tile would be more than the places.
    const int64_t shorter = LongestPart(tiles, starts) - 1;
    int64_t parts = 0;
    for (const int64_t count : tiles) {
      parts += std::max<int64_t>((count + shorter - 1) / shorter, 1);
    }
    EXPECT_GT(8 * parts, 264);
  }
}

// A batch whose entries are equal, but for the last, which is shorter by a tile.
std::vector<int64_t> NearlyEqual(int64_t batch, int64_t tiles) {
  std::vector<int64_t> entries(static_cast<size_t>(batch), tiles);
  entries.back() = tiles - 1;
  return entries;
}

TEST(SplitPlan, NearlyEqualEntriesHaveAboutAsManyBlocksAsEqualOnes) {
  EXPECT_EQ(SplitStarts(NearlyEqual(2, 16), 8, 264).back(), 31);  // equal ones have 32
  EXPECT_EQ(SplitStarts(NearlyEqual(2, 4), 8, 264).back(), 2);    // nothing to split
  EXPECT_EQ(SplitStarts(NearlyEqual(25, 110), 8, 264).back(), 125);
  for (int64_t batch = 2; batch <= 50; ++batch) {
    for (const int64_t tiles : {2, 4, 5, 6, 16, 40, 110, 2048}) {
      for (const int64_t places : {132, 264}) {
        const int64_t splits = NumSplits(8 * batch, tiles, places);
        const std::vector<int64_t> entries = NearlyEqual(batch, tiles);
        const Starts starts = SplitStarts(entries, 8, places);
        // Fewer blocks may do as well: where a part more leaves the longest as long as it is.
        const auto turns = [&](int64_t parts, int64_t longest) {
          return (8 * parts + places - 1) / places * longest;
        };
        EXPECT_TRUE(10 * starts.back() >= 8 * batch * splits ||
                    turns(starts.back(), LongestPart(entries, starts)) <=
                        turns(batch * splits, (tiles + splits - 1) / splits))
            << batch << " of " << tiles << " on " << places << ": " << starts.back();
      }
    }
  }
}

TEST(SplitPlan, MoreEntriesThanPlacesAreSplitByAnEvenShare) {
  std::vector<int64_t> tiles(40, 8);
  tiles[3] = 2048;
  const Starts starts = SplitStarts(tiles, 8, 264);  // 8 * 2360 tiles: 72 each
  EXPECT_EQ(starts[4] - starts[3], 28);
  EXPECT_EQ(starts.back(), 39 + 28);
}

TEST(SplitPlan, BlocksShareAMultiprocessorWhereTheyFit) {
  constexpr int kH200 = 227 * 1024, kSm80 = 163 * 1024;
  constexpr int kWide = cuda::SharedBytes<cuda::FloatProducts<256, 16>>();
  constexpr int kNarrow = cuda::SharedBytes<cuda::MmaProducts<Float16, 128, 64>>();
  EXPECT_EQ(cuda::ResidentBlocks(3, 30 * 1024, kH200), 3);
  EXPECT_EQ(cuda::ResidentBlocks(2, kNarrow, kH200), 2);
  EXPECT_EQ(cuda::ResidentBlocks(2, kNarrow, kSm80), 2);
  EXPECT_EQ(cuda::ResidentBlocks(2, kWide, kH200), 2);
  EXPECT_EQ(cuda::ResidentBlocks(2, kWide, kSm80), 1);
  EXPECT_EQ(cuda::ResidentBlocks(2, 200 * 1024, 100 * 1024), 1);  // refused at the launch
}

TEST(SplitPlan, FewRowsAreMergedByTheirLastBlock) {
  EXPECT_TRUE(cuda::MergesInKernel(4, 33));
  EXPECT_TRUE(cuda::MergesInKernel(2, 128));
  EXPECT_FALSE(cuda::MergesInKernel(64, 5));
}

TEST(StreamSlots, TheFirstStreamsHaveASlotEachAndKeepIt) {
  cuda::StreamSlots slots;
  for (int64_t n = 0; n < cuda::kStreamSlots; ++n) {
    EXPECT_EQ(slots.Of(static_cast<uint64_t>(7 * n + 1)), n);
  }
  EXPECT_EQ(slots.Of(1u << 20), -1);
  EXPECT_EQ(slots.Of(8), 1);
  EXPECT_EQ(slots.Of(1u << 20), -1);
}

// Parameters of entries that are split by their own lengths.
cuda::AttentionParams RaggedParams(const Starts& starts, int32_t kv_heads, int64_t row_blocks) {
  cuda::AttentionParams p{};
  p.batch = static_cast<int32_t>(starts.size()) - 1;
  p.num_kv_heads = kv_heads;
  p.units = p.batch * kv_heads;
  p.row_blocks = row_blocks;
  p.splits = 1;
  p.split_starts = starts.data();
  return p;
}

TEST(SplitPlan, EverySplitOfEveryEntryHasOneBlockAndOnePlace) {
  const Starts starts = {0, 1, 34, 35, 37};
  const cuda::AttentionParams p = RaggedParams(starts, 3, 2);
  const int64_t parts = 37 * 3;
  std::vector<int> visits(static_cast<size_t>(2 * parts), 0);
  int64_t last_row_block = 1;
  for (int64_t index = 0; index < 2 * parts; ++index) {
    const cuda::BlockPlace place = cuda::PlaceOfBlock(p, index, p.row_blocks);
    const cuda::UnitSplits splits = cuda::SplitsOf(p, place.unit);
    ASSERT_LT(place.split, splits.count);
    EXPECT_LE(place.row_block, last_row_block);
    last_row_block = place.row_block;
    ++visits.at(static_cast<size_t>(place.row_block * parts + splits.first + place.split));
  }
  EXPECT_EQ(visits, std::vector<int>(visits.size(), 1));
}

}  // namespace
}  // namespace heed::testing
