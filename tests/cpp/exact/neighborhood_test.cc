// Neighbourhood attention on lines, images and volumes.
#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pattern_request.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::ElementsAre;

class NeighborhoodAttention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(NeighborhoodAttention);

AttentionCase Tokens(int64_t tokens, const Neighborhood& rule) {
  AttentionCase c = MakeCase({.batch = 1,
                              .num_heads = 2,
                              .num_kv_heads = 1,
                              .q_len = tokens,
                              .kv_len = tokens,
                              .head_dim = 8,
                              .head_dim_v = 8});
  c.scalars.patterns = {rule};
  return c;
}

TEST_P(NeighborhoodAttention, MatchesReferenceOnOneToThreeAxes) {
  for (const int64_t window : {1, 2, 3, 5}) {
    ExpectMatchesReference(Tokens(300, {{300}, {window}, {}}));
    ExpectMatchesReference(Tokens(17 * 19, {{17, 19}, {window}, {}}));
    ExpectMatchesReference(Tokens(5 * 9 * 7, {{5, 9, 7}, {window, 3, 7}, {}}));
  }
}

TEST_P(NeighborhoodAttention, MatchesReferenceDilated) {
  ExpectMatchesReference(Tokens(301, {{301}, {7}, {13}}));
  ExpectMatchesReference(Tokens(17 * 19, {{17, 19}, {3, 5}, {5, 2}}));
  ExpectMatchesReference(Tokens(17 * 19, {{17, 19}, {4}, {4}}));
}

TEST_P(NeighborhoodAttention, RunsByItsOwnName) {
  AttentionCase c = Tokens(64, {{8, 8}, {3}, {2}});
  Request request = c.request();
  const std::vector<double> expected = RunByName(request).at("output");
  request.id = "neighborhood";
  std::erase_if(request.params, [](const NamedParam& p) {
    return p.name == "pattern" || p.name == "score" || p.name == "normalize";
  });
  EXPECT_EQ(RunByName(request).at("output"), expected);
}

TEST_P(NeighborhoodAttention, ReducesToFullAttentionWhenTheWindowIsTheGrid) {
  AttentionCase c = Tokens(12 * 20, {{12, 20}, {12, 20}, {}});
  AttentionCase full = c;
  full.scalars.patterns.clear();
  EXPECT_EQ(Bits(RunAttention(c).output), Bits(RunAttention(full).output));
}

// By hand from the paper's rule: a corner of an image sees as many tokens as its middle.
TEST(NeighborhoodPicture, SlidesInwardsAtTheBorders) {
  EXPECT_THAT(Picture(Neighborhood{{5}, {3}, {}}, 5),
              ElementsAre("xxx..", "xxx..", ".xxx.", "..xxx", "..xxx"));
  EXPECT_THAT(Picture(Neighborhood{{6}, {3}, {2}}, 6),
              ElementsAre("x.x.x.", ".x.x.x", "x.x.x.", ".x.x.x", "x.x.x.", ".x.x.x"));
  const std::vector<std::string> image = Picture(Neighborhood{{4, 4}, {3}, {}}, 16);
  EXPECT_EQ(image[0], "xxx.xxx.xxx.....");
  EXPECT_EQ(image[3], ".xxx.xxx.xxx....");
  EXPECT_EQ(image[10], ".....xxx.xxx.xxx");
}

}  // namespace
}  // namespace heed::testing
