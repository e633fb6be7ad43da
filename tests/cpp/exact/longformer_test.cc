// Longformer: windows, dilated or not, and global tokens.
#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pattern_request.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::ElementsAre;

class LongformerAttention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(LongformerAttention);

AttentionCase Small(int64_t q_len, int64_t kv_len, const Longformer& rule) {
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

TEST_P(LongformerAttention, MatchesReference) {
  for (const int64_t len : {1, 3, 65, 300, 700}) {
    for (const int64_t reach : {0, 1, 5, 40, 1000}) {
      if (len == 700 && reach != 40) continue;  // one with three tiles says enough
      AttentionCase c = Small(len, len, {reach, {}, {}});
      c.global_tokens = {0, static_cast<int32_t>(len / 2), static_cast<int32_t>(len + 5)};
      ExpectMatchesReference(c);
    }
  }
}

TEST_P(LongformerAttention, DilationMayDifferByHead) {
  AttentionCase c = Small(300, 300, {6, {1, 2, 3, 50}, {}});
  c.global_tokens = {7};
  ExpectMatchesReference(c);
  c.scalars.causal = true;
  ExpectMatchesReference(c);
}

TEST_P(LongformerAttention, PositionsFollowTheOffset) {
  for (const int64_t offset : {-400, -20, 0, 290, 600}) {
    AttentionCase c = Small(70, 400, {9, {2}, {}});
    c.global_tokens = {3, 299};
    c.scalars.query_offset = QueryOffset::At(offset);
    ExpectMatchesReference(c);
  }
}

TEST_P(LongformerAttention, RunsByItsOwnName) {
  AttentionCase c = Small(70, 70, {4, {2}, {}});
  c.global_tokens = {1};
  Request request = c.request();
  const std::vector<double> expected = RunByName(request).at("output");
  request.id = "longformer";
  std::erase_if(request.params, [](const NamedParam& p) {
    return p.name == "pattern" || p.name == "score" || p.name == "normalize";
  });
  EXPECT_EQ(RunByName(request).at("output"), expected);
}

// Same tiles, same panels, same bits: the window as a pattern is the window as a range.
TEST_P(LongformerAttention, ReducesToTheSlidingWindow) {
  AttentionCase pattern = Small(300, 300, {20, {}, {}});
  AttentionCase window = Small(300, 300, {20, {}, {}});
  window.scalars.patterns.clear();
  window.scalars.window = Window{20, 20};
  EXPECT_EQ(Bits(RunAttention(pattern).output), Bits(RunAttention(window).output));
}

TEST_P(LongformerAttention, ReducesToFullAttentionWhenEveryTokenIsGlobal) {
  AttentionCase c = Small(130, 130, {0, {}, {}});
  for (int32_t token = 0; token < 130; ++token) c.global_tokens.push_back(token);
  AttentionCase full = Small(130, 130, {});
  full.scalars.patterns.clear();
  EXPECT_EQ(Bits(RunAttention(c).output), Bits(RunAttention(full).output));
}

// Figure 2 of the paper, smaller: a window of 2 on each side, with gaps of 1, and one global token.
TEST(LongformerPicture, IsThatOfThePaper) {
  EXPECT_THAT(Picture(Longformer{1, {}, {0}}, 5),
              ElementsAre("xxxxx", "xxx..", "xxxx.", "x.xxx", "x..xx"));
  EXPECT_THAT(Picture(DilatedWindow{1, {2}}, 5),
              ElementsAre("x.x..", ".x.x.", "x.x.x", ".x.x.", "..x.x"));
}

}  // namespace
}  // namespace heed::testing
