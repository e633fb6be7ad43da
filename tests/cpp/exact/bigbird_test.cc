// BigBird: a window of blocks, global blocks, random blocks.
#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pattern_request.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::ElementsAre;

class BigBirdAttention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(BigBirdAttention);

AttentionCase Small(int64_t q_len, int64_t kv_len, const BigBird& rule) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = q_len,
                              .kv_len = kv_len,
                              .head_dim = 16,
                              .head_dim_v = 16});
  c.scalars.patterns = {rule};
  return c;
}

TEST_P(BigBirdAttention, MatchesReference) {
  for (const int64_t len : {1, 63, 300, 700}) {
    for (const int64_t block : {1, 8, 64, 1000}) {
      if (len == 700 && block != 64) continue;  // one with three tiles says enough
      ExpectMatchesReference(Small(len, len, {block, 3, 1, 2, 5}));
    }
  }
}

TEST_P(BigBirdAttention, MoreRandomBlocksThanAreLeftTakesAll) {
  const BigBird rule = {16, 1, 1, 100, 0};
  AttentionCase c = Small(200, 200, rule);
  AttentionCase full = c;
  full.scalars.patterns.clear();
  EXPECT_EQ(Bits(RunAttention(c).output), Bits(RunAttention(full).output));
}

TEST_P(BigBirdAttention, QueriesMayBePartOfTheTokens) {
  for (const int64_t offset : {0, 33, 230}) {
    AttentionCase c = Small(70, 300, {16, 3, 2, 2, 9});
    c.scalars.query_offset = QueryOffset::At(offset);
    ExpectMatchesReference(c);
    c.scalars.causal = true;
    ExpectMatchesReference(c);
  }
}

TEST_P(BigBirdAttention, RunsByItsOwnName) {
  AttentionCase c = Small(130, 130, {8, 3, 1, 2, 77});
  Request request = c.request();
  const std::vector<double> expected = RunByName(request).at("output");
  request.id = "bigbird";
  std::erase_if(request.params, [](const NamedParam& p) {
    return p.name == "pattern" || p.name == "score" || p.name == "normalize";
  });
  EXPECT_EQ(RunByName(request).at("output"), expected);
}

TEST_P(BigBirdAttention, ReducesToABlockWindow) {
  AttentionCase c = Small(300, 300, {1, 41, 0, 0, 0});
  AttentionCase window = c;
  window.scalars.patterns.clear();
  window.scalars.window = Window{20, 20};
  EXPECT_EQ(Bits(RunAttention(c).output), Bits(RunAttention(window).output));
}

// Computed apart from both implementations, from the definition in heed/keep.h; SplitMix64's
// published first number from state 1234567 is 6457827717110365317.
TEST(BigBirdPicture, IsTheSameOnEveryMachine) {
  EXPECT_THAT(Picture(BigBird{1, 1, 1, 1, 0}, 5),
              ElementsAre("xxxxx", "xxx..", "x.x.x", "xx.x.", "x.x.x"));
  const BigBird rule = {1, 3, 1, 2, 7};
  EXPECT_THAT(Picture(rule, 8, 2, 0), ElementsAre("xxxxxxxx", "xxxx.x..", "xxxx..xx", "x.xxx.xx",
                                                  "x.xxxxx.", "x.x.xxxx", "xx.x.xxx", "x...xxxx"));
  EXPECT_THAT(Picture(rule, 8, 2, 1), ElementsAre("xxxxxxxx", "xxx.x..x", "xxxx.xx.", "x.xxxxx.",
                                                  "x.xxxxx.", "x.xxxxx.", "xx.x.xxx", "x...xxxx"));
}

}  // namespace
}  // namespace heed::testing
