// Mixture of block attention: against the oracle, its limit, choices by hand, and what it refuses.
#include <cmath>
#include <limits>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/selective.h"
#include "selective_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class BlockMixture : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(BlockMixture);

RequestBuilder Mixture(const SelectiveSizes& s, double key_block, double top_blocks,
                       uint64_t seed = 1) {
  RequestBuilder builder = SelectiveRequest("block_mixture", s, seed);
  builder.Param("key_block", key_block).Param("top_blocks", top_blocks);
  return builder;
}

TEST_P(BlockMixture, MatchesReference) {
  uint64_t seed = 1;
  for (const SelectiveSizes& s : CrossSizes()) {
    for (const double key_block : {1, 7, 16, 100}) {
      for (const bool causal : {true, false}) {
        RequestBuilder builder = Mixture(s, key_block, 3, seed++);
        builder.Param("causal", causal).Param("return_weights", true).Param("return_lse", true);
        if (s.q_len != s.kv_len) builder.Param("query_offset", std::string("end"));
        ExpectChoiceMatchesOracle(
            builder.request(),
            "length " + std::to_string(s.kv_len) + ", blocks of " + std::to_string(key_block));
      }
    }
  }
}

TEST_P(BlockMixture, LengthsAndOffsetsMatchReference) {
  const SelectiveSizes s = {3, 4, 2, 40, 90, 8, 6};
  for (const bool causal : {true, false}) {
    RequestBuilder builder = Mixture(s, 8, 2);
    builder.Integers("key_lengths", {3}, {90, 0, 29})
        .Param("query_offset", std::vector<double>{50, 0, -7})
        .Param("causal", causal)
        .Param("return_lse", true);
    ExpectChoiceMatchesOracle(builder.request(), "lengths 90, 0 and 29");
  }
}

// Blocks of 32 and more, plain softmax, no weights: queries are gathered by block. Some slices of
// queries, or one; a NaN behind the length; a softcap, which is no bias.
TEST_P(BlockMixture, GatheredQueriesMatchReference) {
  for (const SelectiveSizes& s :
       {SelectiveSizes{2, 4, 2, 150, 150, 8, 6}, SelectiveSizes{1, 2, 1, 1500, 1500, 4, 3},
        SelectiveSizes{1, 3, 3, 70, 200, 16, 33}}) {
    for (const bool causal : {true, false}) {
      RequestBuilder builder = Mixture(s, 32, 3, 5);
      builder.Param("causal", causal).Param("return_lse", true).Param("softcap", 8.0);
      if (s.q_len != s.kv_len) builder.Param("query_offset", std::string("end"));
      if (s.batch == 2) builder.Integers("key_lengths", {2}, {150, 101});
      ExpectChoiceMatchesOracle(builder.request(), "length " + std::to_string(s.kv_len));
    }
  }
}

TEST_P(BlockMixture, GatheredQueriesGiveTheSameBitsOnAnyThreads) {
  RequestBuilder builder = Mixture({1, 2, 1, 700, 700, 8, 6}, 32, 3, 5);
  builder.Param("causal", true).Param("return_lse", true);
  ExpectSameBitsForAnyThreads(builder.request());
}

TEST_P(BlockMixture, ReducesToScaledDotProductWithAllBlocks) {
  for (const SelectiveSizes& s : SelfSizes()) {
    RequestBuilder mixture = Mixture(s, 16, 1000, 9);
    RequestBuilder exact = SelectiveRequest("scaled_dot_product", s, 9);
    mixture.Param("causal", true);
    exact.Param("causal", true);
    ExpectSameOutput(mixture.request(), exact.request());
  }
}

// Equal weights on what is seen: the output is the mean index of the keys.
RequestBuilder ByHand(std::vector<float> q) {
  RequestBuilder builder("block_mixture");
  const int64_t len = static_cast<int64_t>(q.size());
  builder.Floats("q", {1, 1, len, 1}, std::move(q))
      .Floats("k", {1, 1, 6, 1}, {3, 1, 0, 0, 1, 1})
      .Floats("v", {1, 1, 6, 1}, {0, 1, 2, 3, 4, 5})
      .Param("scale", 0.0)
      .Param("key_block", 2.0)
      .Param("top_blocks", 2.0);
  return builder;
}

TEST_P(BlockMixture, ChoosesWhatOneChoosesByHand) {
  // Block means 2, 0, 1. The last query dislikes large keys, the one before likes them.
  RequestBuilder builder = ByHand({1, 1, 1, 1, 1, -1});
  builder.Param("causal", true);
  ExpectAllNear(RunByName(builder.request()).at("output"), {0, 0.5, 1, 1.5, 5.0 / 3, 3.5}, 1e-6);
  // Looking ahead too, every query adds the best other block.
  ExpectAllNear(RunByName(ByHand({1, 1, 1, 1, 1, -1}).request()).at("output"),
                {2.5, 2.5, 1.5, 1.5, 2.5, 3.5}, 1e-6);
}

TEST_P(BlockMixture, OfEqualBlocksTheFirstIsChosen) {
  RequestBuilder builder = ByHand({0, 0, 0, 0, 0, 0});
  ExpectAllNear(RunByName(builder.request()).at("output"), {1.5, 1.5, 1.5, 1.5, 2.5, 2.5}, 1e-6);
}

TEST_P(BlockMixture, WhatIsNotSeenCannotMatter) {
  std::vector<float> k = Normals(40 * 4, 3), v = Normals(40 * 4, 4);
  const auto run = [&] {
    RequestBuilder builder("block_mixture");
    builder.Floats("q", {1, 1, 6, 4}, Normals(24, 5))
        .Floats("k", {1, 1, 40, 4}, k)
        .Floats("v", {1, 1, 40, 4}, v)
        .Integers("key_lengths", {1}, {30})
        .Param("key_block", 8.0)
        .Param("causal", true)
        .Param("query_offset", 10.0);
    return RunByName(builder.request()).at("output");
  };
  const std::vector<double> before = run();
  for (size_t n = 16 * 4; n < k.size(); ++n) k[n] = v[n] = kNan;  // later than all queries
  EXPECT_EQ(run(), before);
  // A key of which the mean is NaN is seen, not skipped: the rows that choose from it are lost.
  k[0] = kNan;
  for (const double x : run()) EXPECT_TRUE(std::isnan(x));
}

TEST_P(BlockMixture, MemoryGrowsWithTheLength) {
  const auto bytes = [](int64_t len) {
    return ScratchBytes(Mixture({1, 2, 2, len, len, 8, 8}, 16, 4).request());
  };
  EXPECT_LT(bytes(4096), 3 * bytes(2048));
}

TEST(BlockMixtureRefuses, WhatChoicesCannotSee) {
  const SelectiveSizes s = {1, 1, 1, 4, 4, 2, 2};
  RequestBuilder zero = Mixture(s, 0, 1);
  ExpectBothRefuse(zero.request(), ErrorCode::kRange, "key_block");
  RequestBuilder none = Mixture(s, 1, 0);
  ExpectBothRefuse(none.request(), ErrorCode::kRange, "top_blocks");
  RequestBuilder lengths = Mixture(s, 2, 1);
  lengths.Integers("key_lengths", {1, 4}, {1, 2, 3, 4});
  ExpectBothRefuse(lengths.request(), ErrorCode::kUnsupported, "key_lengths");
  float memory[16] = {};
  const TensorView<float> x = Contiguous(memory, 1, 1, 2, 2);
  BlockMixtureOptions options;
  options.attention.window = Window{1, 1};
  EXPECT_THROW(
      BlockMixtureAttention(x, x, x, options, {.output = Contiguous(memory + 8, 1, 1, 2, 2)}),
      Error);
}

}  // namespace
}  // namespace heed::testing
