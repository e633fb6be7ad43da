// BigBird: a window of blocks, global blocks at the start and the end, random blocks.
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "composed_case.h"
#include "gmock/gmock.h"
#include "gradient_case.h"
#include "gtest/gtest.h"
#include "pattern_request.h"
#include "selective_case.h"
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

TEST_P(BigBirdAttention, LastBlocksMatchReference) {
  for (const int64_t len : {1, 63, 300}) {
    for (const int64_t block : {1, 8, 64, 1000}) {
      for (const int64_t last : {1, 3, 400}) {
        if (block == 1 && last == 3) continue;
        ExpectMatchesReference(Small(len, len, {block, 3, 1, 2, 5, last}));
      }
    }
  }
}

TEST_P(BigBirdAttention, LastBlocksAreThoseOfThePositionsOfKeys) {
  for (const int64_t offset : {0, 33, 230}) {
    AttentionCase c = Small(70, 300, {16, 3, 1, 1, 9, 2});
    c.scalars.query_offset = QueryOffset::At(offset);
    ExpectMatchesReference(c);
    c.scalars.causal = true;
    c.key_lengths = {290, 100};  // the last block of the second entry is hidden, no other is global
    ExpectMatchesReference(c);
  }
}

TEST_P(BigBirdAttention, LastBlocksRunByBothNames) {
  RequestBuilder request = SelectiveRequest("bigbird", {.q_len = 45, .kv_len = 45}, 3);
  for (const auto& [name, count] : {std::pair("global_blocks", 1), std::pair("last_blocks", 1),
                                    std::pair("random_blocks", 0)}) {
    request.Param(name, static_cast<double>(count));
  }
  request.Param("block_size", std::vector<double>{8});
  Request named = request.request();
  const std::vector<double> expected = RunByName(named).at("output");
  named.id = "block_sparse";
  named.params.push_back({"pattern", std::string("bigbird")});
  EXPECT_EQ(RunByName(named).at("output"), expected);
  std::erase_if(named.params, [](const NamedParam& p) { return p.name == "last_blocks"; });
  EXPECT_NE(RunByName(named).at("output"), expected);
}

TEST_P(BigBirdAttention, LastBlocksHaveGradients) {
  AttentionCase c = MakeCase(kGradientSizes);
  for (const int64_t last : {1, 2, 9}) {
    c.scalars.patterns = {BigBird{2, 1, 0, 0, 0, last}};
    for (const int64_t offset : {0, 2}) {
      c.scalars.query_offset = QueryOffset::At(offset);
      ExpectGradientsMatch(c);
    }
  }
}

TEST(BigBirdErrors, LastBlocksAreRefusedByBoth) {
  for (const char* id : {"bigbird", "block_sparse"}) {
    for (const double bad : {-1.0, 0.5}) {
      RequestBuilder request = SelectiveRequest(id, {}, 1);
      if (std::string_view(id) == "block_sparse") request.Param("pattern", std::string("bigbird"));
      request.Param("last_blocks", bad);
      ExpectBothRefuse(request.request(), ErrorCode::kRange, "last_blocks");
    }
  }
  RequestBuilder unread = SelectiveRequest("block_sparse", {}, 1);
  unread.Param("pattern", std::string("strided")).Param("last_blocks", 1.0);
  ExpectBothRefuse(unread.request(), ErrorCode::kOption, "last_blocks");
}

// What heed/keep.h says of pictures without random blocks.
std::vector<std::string> Plain(const BigBird& rule, int64_t len) {
  const int64_t count = (len + rule.block_size - 1) / rule.block_size;
  std::vector<std::string> lines(static_cast<size_t>(len));
  for (int64_t query = 0; query < len; ++query) {
    for (int64_t key = 0; key < len; ++key) {
      const int64_t i = query / rule.block_size, j = key / rule.block_size;
      const bool first = i < rule.global_blocks || j < rule.global_blocks;
      const bool last = i + rule.last_blocks >= count || j + rule.last_blocks >= count;
      const bool near = std::abs(i - j) <= rule.window_blocks / 2;
      lines[static_cast<size_t>(query)] += first || last || near ? 'x' : '.';
    }
  }
  return lines;
}

TEST(BigBirdPicture, OfLastBlocksIsThePlainDefinition) {
  for (const int64_t len : {1, 7, 12, 70}) {
    for (const int64_t block : {1, 3, 5, 64}) {
      for (const int64_t global : {0, 1, 3}) {
        for (const int64_t last : {0, 1, 2, 5, 100}) {
          const BigBird rule = {block, 3, global, 0, 0, last};
          EXPECT_EQ(Picture(rule, len), Plain(rule, len))
              << len << " tokens, " << block << " a block, " << global << ", " << last;
        }
      }
    }
  }
}

TEST(BigBirdPicture, LastBlocksLeaveTheRandomOnes) {
  const int64_t len = 23;
  for (const int64_t block : {1, 4}) {
    const int64_t count = (len + block - 1) / block;
    for (const int64_t last : {1, 2, 3}) {
      const auto without = Picture(BigBird{block, 1, 1, 2, 11}, len, 2, 1);
      const auto with = Picture(BigBird{block, 1, 1, 2, 11, last}, len, 2, 1);
      const int64_t end = (count - last) * block;
      for (int64_t i = 0; i < len; ++i) {
        const auto row = static_cast<size_t>(i), from = static_cast<size_t>(end);
        EXPECT_EQ(with[row].substr(from), std::string(static_cast<size_t>(len - end), 'x'));
        if (i >= end) {
          EXPECT_EQ(with[row], std::string(static_cast<size_t>(len), 'x'));
        } else {
          EXPECT_EQ(with[row].substr(0, from), without[row].substr(0, from)) << "query " << i;
        }
      }
    }
  }
}

// Computed apart from both implementations, from the definition in heed/keep.h; SplitMix64's
// published first number from state 1234567 is 6457827717110365317.
TEST(BigBirdPicture, IsTheSameOnEveryMachine) {
  EXPECT_THAT(Picture(BigBird{1, 1, 1, 1, 0}, 5),
              ElementsAre("xxxxx", "xxx..", "x.x.x", "xx.x.", "x.x.x"));
  EXPECT_THAT(Picture(BigBird{1, 1, 1, 1, 0, 1}, 5),
              ElementsAre("xxxxx", "xxx.x", "x.x.x", "xx.xx", "xxxxx"));
  const BigBird rule = {1, 3, 1, 2, 7};
  EXPECT_THAT(Picture(rule, 8, 2, 0), ElementsAre("xxxxxxxx", "xxxx.x..", "xxxx..xx", "x.xxx.xx",
                                                  "x.xxxxx.", "x.x.xxxx", "xx.x.xxx", "x...xxxx"));
  EXPECT_THAT(Picture(rule, 8, 2, 1), ElementsAre("xxxxxxxx", "xxx.x..x", "xxxx.xx.", "x.xxxxx.",
                                                  "x.xxxxx.", "x.xxxxx.", "xx.x.xxx", "x...xxxx"));
}

}  // namespace
}  // namespace heed::testing
