// More rows than a block and no more keys than a tile: outputs are written as they are summed.
#include <cmath>
#include <limits>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class SingleTile : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(SingleTile);

AttentionCase TileCase(uint64_t seed, Layout layout = Layout::kDense) {
  return MakeCase({.batch = 2, .q_len = 130, .kv_len = 150}, seed, layout);
}

TEST_P(SingleTile, MatchesReference) {
  ExpectMatchesReference(TileCase(1));
  for (const Layout layout : {Layout::kBlhd, Layout::kPadded, Layout::kReversed}) {
    AttentionCase c = TileCase(2, layout);
    c.output_layout = layout;
    ExpectMatchesReference(c);
  }
  AttentionCase sinks = TileCase(3);
  sinks.sinks = {0.5f, 3.0f};
  ExpectMatchesReference(sinks);
}

TEST_P(SingleTile, BatchEntryWithoutKeysIsEmpty) {
  AttentionCase c = TileCase(4);
  c.key_lengths = {0, 70};
  ExpectMatchesReference(c);
}

TEST_P(SingleTile, RowsHiddenByBiasAreEmpty) {
  AttentionCase c = TileCase(5);
  Random random(5);
  c.bias = MakeBias({1, 1, 130, 150}, random);
  for (int64_t j = 0; j < 150; ++j) {
    c.bias.view()(0, 0, 97, j) = -std::numeric_limits<float>::infinity();
  }
  ExpectMatchesReference(c);
}

TEST_P(SingleTile, HiddenNanStaysOutOfTheOutput) {
  AttentionCase c = TileCase(6);
  Random random(6);
  c.bias = MakeBias({1, 1, 130, 150}, random);
  for (int64_t i = 0; i < 130; ++i) {
    c.bias.view()(0, 0, i, 20) = -std::numeric_limits<float>::infinity();
  }
  c.v.view()(0, 1, 20, 3) = std::nanf("");
  ExpectMatchesReference(c);
}

// A window that hides nothing takes the way of any window, by rows of its own.
TEST_P(SingleTile, HasTheBitsOfAWindowOverAllKeys) {
  AttentionCase c = TileCase(7);
  c.scalars.query_offset = QueryOffset::End();
  // The sum of a column is next to nothing, and negative.
  for (int64_t j = 0; j < 150; ++j) c.v.view()(0, 1, j, 5) = 0;
  c.v.view()(0, 1, 149, 5) = -std::numeric_limits<float>::denorm_min();
  const Results expected = RunAttention(c);
  c.scalars.window = Window{200, 200};
  const Results actual = RunAttention(c);
  EXPECT_EQ(Bits(actual.output), Bits(expected.output));
  EXPECT_EQ(Bits(actual.lse), Bits(expected.lse));
}

}  // namespace
}  // namespace heed::testing
