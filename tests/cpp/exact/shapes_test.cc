// Exact attention at every size, grouping and memory layout.
#include <cmath>
#include <limits>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class AttentionShapes : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AttentionShapes);

TEST_P(AttentionShapes, MatchesReferenceAtEveryLength) {
  for (const int64_t len : {1, 3, 63, 65, 200}) {
    ExpectMatchesReference(MakeCase({.q_len = len, .kv_len = len}));
  }
}

TEST_P(AttentionShapes, MatchesReferenceAtLength1000) {
  ExpectMatchesReference(
      MakeCase({.num_heads = 1, .num_kv_heads = 1, .q_len = 1000, .kv_len = 1000}));
}

TEST_P(AttentionShapes, MatchesReferenceWhenLengthsDiffer) {
  for (const auto& [q_len, kv_len] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 200}, {200, 1}, {3, 65}, {65, 3}, {2, 300}, {129, 257}, {128, 256}}) {
    ExpectMatchesReference(MakeCase({.q_len = q_len, .kv_len = kv_len, .head_dim = 24}));
  }
}

TEST_P(AttentionShapes, MatchesReferenceForEveryHeadDim) {
  for (const int64_t dim : {1, 40, 64, 80, 96, 128, 256}) {
    ExpectMatchesReference(
        MakeCase({.q_len = 33, .kv_len = 70, .head_dim = dim, .head_dim_v = dim}));
  }
}

TEST_P(AttentionShapes, HeadDimOfValuesMayDiffer) {
  for (const auto& [dim, dim_v] : std::vector<std::pair<int64_t, int64_t>>{
           {64, 1}, {64, 33}, {1, 64}, {33, 128}, {128, 40}, {5, 7}}) {
    ExpectMatchesReference(
        MakeCase({.q_len = 17, .kv_len = 65, .head_dim = dim, .head_dim_v = dim_v}));
  }
}

TEST_P(AttentionShapes, QueryHeadsShareKvHeads) {
  for (const auto& [heads, kv_heads] :
       std::vector<std::pair<int64_t, int64_t>>{{4, 2}, {6, 1}, {6, 3}, {3, 3}}) {
    for (const int64_t q_len : {1, 2, 37}) {
      ExpectMatchesReference(MakeCase({.batch = 2,
                                       .num_heads = heads,
                                       .num_kv_heads = kv_heads,
                                       .q_len = q_len,
                                       .kv_len = 70,
                                       .head_dim = 40,
                                       .head_dim_v = 24}));
    }
  }
}

TEST_P(AttentionShapes, OneQueryAgainstManyKeys) {
  ExpectMatchesReference(
      MakeCase({.batch = 2, .num_heads = 8, .num_kv_heads = 2, .q_len = 1, .kv_len = 700}));
}

TEST_P(AttentionShapes, TakesEveryLayoutWithoutCopies) {
  for (const Layout in :
       {Layout::kDense, Layout::kBlhd, Layout::kPadded, Layout::kReversed, Layout::kOneBatch}) {
    for (const Layout out : {Layout::kDense, Layout::kBlhd, Layout::kPadded, Layout::kReversed}) {
      AttentionCase c = MakeCase({.batch = 2,
                                  .num_heads = 4,
                                  .num_kv_heads = 2,
                                  .q_len = 19,
                                  .kv_len = 35,
                                  .head_dim = 12,
                                  .head_dim_v = 9},
                                 3, in);
      c.output_layout = out;
      ExpectMatchesReference(c);
    }
  }
}

TEST_P(AttentionShapes, LayoutChangesNoBit) {
  const Sizes sizes{.batch = 2, .num_heads = 4, .num_kv_heads = 2, .q_len = 33, .kv_len = 50};
  const Results dense = RunAttention(MakeCase(sizes, 5));
  for (const Layout layout : {Layout::kBlhd, Layout::kPadded, Layout::kReversed}) {
    const Results other = RunAttention(MakeCase(sizes, 5, layout));
    EXPECT_EQ(Bits(dense.output), Bits(other.output));
    EXPECT_EQ(Bits(dense.lse), Bits(other.lse));
  }
}

TEST_P(AttentionShapes, NothingToDoIsNotAnError) {
  for (const Sizes& sizes :
       {Sizes{.batch = 0}, Sizes{.q_len = 0}, Sizes{.num_heads = 0, .num_kv_heads = 0},
        Sizes{.num_heads = 0, .num_kv_heads = 2}, Sizes{.head_dim_v = 0}}) {
    const Results r = RunAttention(MakeCase(sizes), {.lse = true, .weights = true});
    EXPECT_EQ(r.output.size(), 0);
  }
}

TEST_P(AttentionShapes, LseNeedsNoValueDimension) {
  const AttentionCase c = MakeCase({.q_len = 5, .kv_len = 9, .head_dim = 8, .head_dim_v = 0});
  ExpectMatchesReference(c);
}

TEST_P(AttentionShapes, WithoutKeysEveryRowIsEmpty) {
  const Results r =
      RunAttention(MakeCase({.q_len = 3, .kv_len = 0}), {.lse = true, .weights = true});
  for (const float x : r.output.Elements()) EXPECT_EQ(x, 0.0f);
  for (const float x : r.lse.Elements()) EXPECT_EQ(x, -kInf);
}

TEST_P(AttentionShapes, WithoutDimensionsAllKeysAreAlike) {
  AttentionCase c = MakeCase({.q_len = 3, .kv_len = 70, .head_dim = 0});
  c.scalars.scale = 1.0;
  ExpectMatchesReference(c);
}

}  // namespace
}  // namespace heed::testing
