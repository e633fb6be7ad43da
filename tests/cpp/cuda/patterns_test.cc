// Keep patterns on the device: the rows that the host makes of them, and the tile kernel on top.
#include <string>

#include "device_case.h"
#include "gtest/gtest.h"
#include "random_pattern.h"
#include "src/cuda/pattern_rows.h"
#include "src/cuda/plan.h"

namespace heed::testing {
namespace {

class DevicePatterns : public OnDevice {};
HEED_IN_EVERY_TYPE(DevicePatterns);

TEST_P(DevicePatterns, OfEveryKindMatchTheReference) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExpectDeviceMatches(RandomKeepCase(seed), GetParam(), {.processors = seed % 2 == 0 ? 1 : 64});
    if (HasFailure()) return;
  }
}

TEST_P(DevicePatterns, GlobalAndRandomBlocksSkipTiles) {
  AttentionCase c = MakeCase({.q_len = 400, .kv_len = 400, .head_dim = 16, .head_dim_v = 16});
  c.scalars.patterns = {BigBird{.block_size = 20, .window_blocks = 1, .random_blocks = 1}};
  ExpectDeviceMatches(c, GetParam());
  c.scalars.patterns = {
      BigBird{.block_size = 20, .window_blocks = 1, .random_blocks = 1, .last_blocks = 2}};
  ExpectDeviceMatches(c, GetParam());
  c.scalars.patterns = {Longformer{.reach = 3, .dilation = {1, 30}, .global_tokens = {399, 0}}};
  c.scalars.causal = true;
  c.sizes.num_heads = 2;
  ExpectDeviceMatches(c, GetParam(), {.processors = 64});
}

cuda::PatternRows RowsOf(const KeepPattern& pattern, int64_t batch) {
  AttentionCase c = MakeCase({.batch = batch, .q_len = 256, .kv_len = 256});
  Buffer<float> output({batch, 2, 256, 64}, Layout::kDense, 0);
  c.scalars.patterns = {pattern};
  return cuda::RowsOfPatterns(ValidateAttention(StoredTensor(c.q.view()), StoredTensor(c.k.view()),
                                                StoredTensor(c.v.view()), c.options(),
                                                {.output = output.view()}));
}

TEST(DevicePatternRows, OfABlockAreStoredOnce) {
  const Buffer<uint8_t> keep({1, 1, 4, 4}, Layout::kDense, 1);
  BlockList list;
  list.keep = keep.view();
  const cuda::PatternRows rows = RowsOf(list, 3);
  EXPECT_EQ(rows.ids.size(), 2u * 256u);  // batch entries share them
  EXPECT_EQ(rows.batch_stride, 0);
  EXPECT_EQ(rows.starts.size(), 5u);  // four rows of blocks, alike for both heads
  EXPECT_EQ(rows.tiles.size(), 16u);
  for (const uint64_t word : rows.words) EXPECT_EQ(word, ~uint64_t{0});
}

TEST(DevicePatternRows, HoldNothingWithoutAPattern) {
  EXPECT_TRUE(cuda::RowsOfPatterns({}).ids.empty());
}

}  // namespace
}  // namespace heed::testing
