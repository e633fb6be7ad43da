// Few queries over many keys: keys are read where they lie, in splits of 1024, and merged.
#include <cmath>
#include <limits>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class SplitKv : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(SplitKv);

AttentionCase Decode(int64_t kv_len, uint64_t seed, int64_t q_len = 1) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = q_len,
                              .kv_len = kv_len,
                              .head_dim = 40,
                              .head_dim_v = 32},
                             seed);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::End();
  return c;
}

TEST_P(SplitKv, MatchesReference) {
  uint64_t seed = 1;
  for (const int64_t kv_len : {1, 1023, 1024, 1025, 2500}) {
    for (const int64_t q_len : {1, 3, 20}) {
      ExpectMatchesReference(Decode(kv_len, ++seed, q_len));
    }
  }
}

// More than 16 MB of keys and values, which are touched before they are used: rows with gaps, whole
// panels and the end of one.
TEST_P(SplitKv, MatchesReferenceWhereKeysComeFromMemory) {
  const Sizes sizes = {.batch = 1,
                       .num_heads = 4,
                       .num_kv_heads = 1,
                       .q_len = 1,
                       .kv_len = 9003,
                       .head_dim = 256,
                       .head_dim_v = 256};
  ExpectMatchesReference(MakeCase(sizes, 11, Layout::kPadded));
  AttentionCase hidden = MakeCase(sizes, 12);
  hidden.key_lengths = {8197};
  ExpectMatchesReference(hidden);
}

TEST_P(SplitKv, MatchesReferenceWithMasksAndModifiers) {
  Random random(3);
  AttentionCase c = Decode(3000, 4, 2);
  c.scalars.softcap = 10.0;
  c.alibi_slopes = {0.1f, 0.01f, 0.001f, 0.0f};
  c.sinks = {0.5f, -1.0f, 2.0f, -INFINITY};
  c.keep = MakeKeep({1, 4, 2, 3000}, random, 0.3);
  c.bias = MakeBias({1, 1, 2, 3000}, random, 0.2);
  c.key_lengths = {3000, 1100};
  ExpectMatchesReference(c);
  c.scalars.window = Window{1500, 0};
  ExpectMatchesReference(c);
  c.sizes.head_dim_v = 33;  // packs values
  c.v = MakeCase(c.sizes, 4).v;
  ExpectMatchesReference(c);
}

TEST_P(SplitKv, EmptyRowsAndEmptySplitsStayEmpty) {
  AttentionCase c = Decode(2100, 5);
  c.key_lengths = {0, 3};
  const Results r = RunAttention(c);
  EXPECT_EQ(r.output(0, 1, 0, 0), 0.0f);
  EXPECT_EQ(r.lse(0, 1, 0, 0), -std::numeric_limits<float>::infinity());
  ExpectMatchesReference(c);
}

TEST_P(SplitKv, OneSplitHasTheBitsOfManyRows) {
  // 97 rows pack shared tiles; one row reads keys and values where they lie.
  AttentionCase many = MakeCase({.num_heads = 1,
                                 .num_kv_heads = 1,
                                 .q_len = 97,
                                 .kv_len = 1000,
                                 .head_dim = 40,
                                 .head_dim_v = 64},
                                6);
  const Results all = RunAttention(many);
  AttentionCase one = many;
  one.sizes.q_len = 1;
  for (const int64_t i : {0, 50, 96}) {
    one.q = Buffer<float>({1, 1, 1, 40}, Layout::kDense, 0.0f);
    for (int64_t d = 0; d < 40; ++d) one.q(0, 0, 0, d) = many.q(0, 0, i, d);
    const Results r = RunAttention(one);
    for (int64_t d = 0; d < 64; ++d) EXPECT_EQ(r.output(0, 0, 0, d), all.output(0, 0, i, d));
    EXPECT_EQ(r.lse(0, 0, 0, 0), all.lse(0, 0, i, 0));
  }
}

TEST_P(SplitKv, HiddenValuesThatAreNotFiniteDoNotMatter) {
  AttentionCase c = Decode(2300, 7);
  c.key_lengths = {2300, 1500};
  Random random(8);
  c.keep = MakeKeep({2, 1, 1, 2300}, random, 0.7);
  const Results clean = RunAttention(c);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t j = 0; j < 2300; ++j) {
      if (c.keep(b, 0, 0, j) != 0 && j < c.key_lengths[static_cast<size_t>(b)]) continue;
      for (int64_t d = 0; d < 32; ++d) c.v(b, 1, j, d) = j % 2 ? NAN : INFINITY;
      for (int64_t d = 0; d < 40; ++d) c.k(b, 1, j, d) = NAN;
    }
  }
  const Results r = RunAttention(c);
  EXPECT_EQ(Bits(r.output), Bits(clean.output));
  EXPECT_EQ(Bits(r.lse), Bits(clean.lse));
}

TEST_P(SplitKv, VisibleNanReachesItsRowsOnly) {
  AttentionCase c = Decode(2300, 9);
  const Results clean = RunAttention(c);
  c.v(0, 1, 100, 5) = NAN;
  const Results r = RunAttention(c);
  for (int64_t h = 0; h < 4; ++h) {
    EXPECT_EQ(std::isnan(r.output(0, h, 0, 5)), h >= 2) << h;
    EXPECT_EQ(r.output(0, h, 0, 6), clean.output(0, h, 0, 6));
    EXPECT_EQ(r.output(1, h, 0, 5), clean.output(1, h, 0, 5));
  }
}

TEST_P(SplitKv, ThreadsAndPartnersChangeNoBit) {
  const AttentionCase both = Decode(5000, 10);
  const auto one = MakeThreadPool(1);
  const Results expected = RunAttention(both, {}, one.get());
  for (const int threads : {2, 5}) {
    const auto pool = MakeThreadPool(threads);
    const Results r = RunAttention(both, {}, pool.get());
    EXPECT_EQ(Bits(r.output), Bits(expected.output));
    EXPECT_EQ(Bits(r.lse), Bits(expected.lse));
  }
  AttentionCase alone = both;
  alone.sizes.batch = 1;
  alone.q = Buffer<float>({1, 4, 1, 40}, Layout::kDense, 0.0f);
  alone.k = Buffer<float>({1, 2, 5000, 40}, Layout::kDense, 0.0f);
  alone.v = Buffer<float>({1, 2, 5000, 32}, Layout::kDense, 0.0f);
  for (auto [to, from] : {std::pair{&alone.q, &both.q}, {&alone.k, &both.k}, {&alone.v, &both.v}}) {
    to->ForEach(
        [from](int64_t, int64_t h, int64_t i, int64_t d, float& x) { x = (*from)(1, h, i, d); });
  }
  const Results r = RunAttention(alone);
  for (int64_t h = 0; h < 4; ++h) EXPECT_EQ(r.output(0, h, 0, 3), expected.output(1, h, 0, 3));
}

}  // namespace
}  // namespace heed::testing
