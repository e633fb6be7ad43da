// Windows of an image, shifted and not.
#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pattern_request.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::ElementsAre;

class SwinWindowAttention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(SwinWindowAttention);

AttentionCase Image(int64_t tokens, const SwinWindow& rule) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 2,
                              .num_kv_heads = 1,
                              .q_len = tokens,
                              .kv_len = tokens,
                              .head_dim = 8,
                              .head_dim_v = 8});
  c.scalars.patterns = {rule};
  return c;
}

TEST_P(SwinWindowAttention, MatchesReferenceWithAndWithoutShift) {
  for (const int64_t shift : {0, 1, 3}) {
    ExpectMatchesReference(Image(24 * 16, {{24, 16}, {4}, {shift}}));
    ExpectMatchesReference(Image(12 * 30, {{12, 30}, {4, 5}, {shift, 2}}));
  }
}

TEST_P(SwinWindowAttention, RunsByItsOwnName) {
  AttentionCase c = Image(64, {{8, 8}, {4}, {2}});
  Request request = c.request();
  const std::vector<double> expected = RunByName(request).at("output");
  request.id = "swin_window";
  std::erase_if(request.params, [](const NamedParam& p) {
    return p.name == "pattern" || p.name == "score" || p.name == "normalize";
  });
  EXPECT_EQ(RunByName(request).at("output"), expected);
}

TEST_P(SwinWindowAttention, ReducesToFullAttentionWhenTheWindowIsTheImage) {
  AttentionCase c = Image(12 * 20, {{12, 20}, {12, 20}, {}});
  AttentionCase full = c;
  full.scalars.patterns.clear();
  EXPECT_EQ(Bits(RunAttention(c).output), Bits(RunAttention(full).output));
}

// The mask that the published code computes for a 4 x 4 image, window 2, shift 1, by hand: regions
// of the image are 1 2 2 1' / 3 4 4 3' / 3 4 4 3' / 1'' 2' 2' 1'''.
TEST(SwinWindowPicture, ShiftedWindowsDoNotReachAroundTheEdge) {
  const std::vector<std::string> lines = Picture(SwinWindow{{4, 4}, {2}, {1}}, 16);
  EXPECT_EQ(lines[0], "x...............");   // a corner of the rolled image, alone
  EXPECT_EQ(lines[1], ".xx.............");   // the upper edge
  EXPECT_EQ(lines[4], "....x...x.......");   // the left edge
  EXPECT_EQ(lines[5], ".....xx..xx.....");   // a whole window
  EXPECT_EQ(lines[15], "...............x");  // the opposite corner
}

TEST(SwinWindowPicture, OneRowIsThatOfTheHeader) {
  EXPECT_THAT(Picture(SwinWindow{{1, 4}, {1, 2}, {}}, 4),
              ElementsAre("xx..", "xx..", "..xx", "..xx"));
  EXPECT_THAT(Picture(SwinWindow{{1, 4}, {1, 2}, {0, 1}}, 4),
              ElementsAre("x...", ".xx.", ".xx.", "...x"));
}

}  // namespace
}  // namespace heed::testing
