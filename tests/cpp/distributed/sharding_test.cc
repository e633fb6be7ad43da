// Which tokens and heads a rank has.
#include <vector>

#include "distributed/shards.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/distributed.h"

namespace heed::distributed {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(TokensOf, GivesTheExampleOfItsComment) {
  EXPECT_THAT(TokensOf(14, 0, 2, TokenOrder::kZigzag),
              ElementsAre(TokenSpan{0, 4}, TokenSpan{12, 2}));
  EXPECT_THAT(TokensOf(14, 1, 2, TokenOrder::kZigzag),
              ElementsAre(TokenSpan{4, 4}, TokenSpan{8, 4}));
}

TEST(TokensOf, GivesEveryTokenToOneRank) {
  for (const TokenOrder order : {TokenOrder::kContiguous, TokenOrder::kZigzag}) {
    for (int size = 1; size <= 5; ++size) {
      for (int64_t len = 0; len <= 70; ++len) {
        std::vector<int> owners(static_cast<size_t>(len), 0);
        for (int rank = 0; rank < size; ++rank) {
          for (const TokenSpan& span : TokensOf(len, rank, size, order)) {
            EXPECT_TRUE(span.begin % 4 == 0 || span.len == 0);
            for (int64_t n = 0; n < span.len; ++n) ++owners[static_cast<size_t>(span.begin + n)];
          }
        }
        EXPECT_THAT(owners, Each(1)) << len << " tokens, " << size << " ranks";
      }
    }
  }
}

// Pairs of a query and a key that a rank computes when every query sees itself and what is before.
int64_t CausalPairs(int64_t len, int rank, int size, TokenOrder order) {
  int64_t pairs = 0;
  testing::ForEachToken(len, rank, size, order,
                        [&](int64_t, int64_t token) { pairs += token + 1; });
  return pairs;
}

TEST(TokensOf, ZigzagGivesEveryRankAsMuchWork) {
  const int64_t len = 8192;
  const double average = 0.5 * len * (len + 1) / 4;
  for (int rank = 0; rank < 4; ++rank) {
    const auto zigzag = static_cast<double>(CausalPairs(len, rank, 4, TokenOrder::kZigzag));
    EXPECT_NEAR(zigzag / average, 1, 1e-3);
  }
  const auto last = static_cast<double>(CausalPairs(len, 3, 4, TokenOrder::kContiguous));
  EXPECT_NEAR(last / average, 1.75, 1e-3);
}

TEST(TokensOf, RefusesWhatIsNoRank) {
  EXPECT_THROW(TokensOf(-1, 0, 1, TokenOrder::kZigzag), Error);
  EXPECT_THROW(TokensOf(8, 0, 0, TokenOrder::kZigzag), Error);
  EXPECT_THROW(TokensOf(8, 2, 2, TokenOrder::kZigzag), Error);
  EXPECT_THROW(TokensOf(8, -1, 2, TokenOrder::kZigzag), Error);
  EXPECT_THROW(TokensOf(8, 0, 2, static_cast<TokenOrder>(2)), Error);
}

TEST(HeadsOf, DealsThemInOrderOrSharesThem) {
  EXPECT_EQ(HeadsOf(8, 1, 4), (TokenSpan{2, 2}));
  EXPECT_EQ(HeadsOf(2, 0, 4), (TokenSpan{0, 1}));
  EXPECT_EQ(HeadsOf(2, 1, 4), (TokenSpan{0, 1}));
  EXPECT_EQ(HeadsOf(2, 2, 4), (TokenSpan{1, 1}));
  EXPECT_THROW(HeadsOf(6, 0, 4), Error);
  EXPECT_THROW(HeadsOf(0, 0, 4), Error);
}

}  // namespace
}  // namespace heed::distributed
