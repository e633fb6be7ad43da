// heed::Merge: partial results over disjoint keys become the result over all of them.
#include "heed/merge.h"

#include <cmath>
#include <limits>
#include <vector>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using ::testing::ElementsAre;

PartialAttention State(const Results& r) { return {r.output.view(), r.lse.view()}; }

Results MergeAll(const std::vector<const Results*>& parts, ThreadPool* pool = nullptr) {
  std::vector<PartialAttention> states;
  for (const Results* part : parts) states.push_back(State(*part));
  Results merged;
  merged.output = Buffer<float>(parts[0]->output.shape(), Layout::kPadded, kNan);
  merged.lse = Buffer<float>(parts[0]->lse.shape(), Layout::kDense, kNan);
  Merge(states, merged.output.view(), merged.lse.view(), pool);
  EXPECT_TRUE(merged.output.GapsAreUntouched());
  return merged;
}

// The case with keys dealt out at random: one result for each share.
std::vector<Results> DealKeys(AttentionCase c, int shares, uint64_t seed) {
  Random random(seed);
  std::vector<int64_t> share_of;
  for (int64_t j = 0; j < c.sizes.kv_len; ++j) share_of.push_back(random.Integer(0, shares - 1));
  std::vector<Results> parts;
  for (int share = 0; share < shares; ++share) {
    c.keep = Buffer<uint8_t>({1, 1, 1, c.sizes.kv_len}, Layout::kDense, 0);
    for (int64_t j = 0; j < c.sizes.kv_len; ++j) {
      c.keep(0, 0, 0, j) = share_of[static_cast<size_t>(j)] == share;
    }
    parts.push_back(RunAttention(c));
  }
  return parts;
}

// One row of two numbers.
Results Row(float lse, float x, float y) {
  Results r;
  r.output = Buffer<float>({1, 1, 1, 2}, Layout::kDense, 0);
  r.output(0, 0, 0, 0) = x;
  r.output(0, 0, 0, 1) = y;
  r.lse = Buffer<float>({1, 1, 1, 1}, Layout::kDense, lse);
  return r;
}

TEST(Merge, PartsMakeTheWhole) {
  for (const int shares : {1, 2, 3, 7}) {
    AttentionCase c = MakeCase({.batch = 2,
                                .num_heads = 4,
                                .num_kv_heads = 2,
                                .q_len = 33,
                                .kv_len = 300,
                                .head_dim = 16,
                                .head_dim_v = 70});
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::At(3);  // shares without a visible key: empty rows
    const std::vector<Results> parts = DealKeys(c, shares, 5);
    std::vector<const Results*> all;
    for (const Results& part : parts) all.push_back(&part);
    ExpectResultsMatch(c, MergeAll(all), RunOracle(c));
  }
}

TEST(Merge, GroupingDoesNotMatter) {
  const AttentionCase c = MakeCase({.q_len = 9, .kv_len = 200});
  const std::vector<Results> parts = DealKeys(c, 4, 8);
  const Results left = MergeAll({&parts[0], &parts[1]});
  const Results right = MergeAll({&parts[3], &parts[2]});
  ExpectResultsMatch(c, MergeAll({&right, &left}), RunOracle(c));
}

TEST(Merge, WeighsByTheDenominators) {
  // Denominators 1 and 3: a quarter of one, three quarters of the other.
  const Results a = Row(0.0f, 4.0f, -8.0f);
  const Results b = Row(std::log(3.0f), 8.0f, 0.0f);
  const Results merged = MergeAll({&a, &b});
  EXPECT_NEAR(merged.output(0, 0, 0, 0), 7.0, 1e-6);
  EXPECT_NEAR(merged.output(0, 0, 0, 1), -2.0, 1e-6);
  EXPECT_NEAR(merged.lse(0, 0, 0, 0), std::log(4.0), 1e-6);
}

TEST(Merge, EmptyStateIsTheIdentity) {
  const AttentionCase c = MakeCase({.q_len = 5, .kv_len = 40});
  const Results some = RunAttention(c);
  Results nothing = some;
  nothing.lse = Buffer<float>(some.lse.shape(), Layout::kDense, -kInf);
  nothing.output = Buffer<float>(some.output.shape(), Layout::kDense, kNan);
  for (const Results& merged :
       {MergeAll({&some}), MergeAll({&some, &nothing}), MergeAll({&nothing, &some, &nothing})}) {
    EXPECT_EQ(Bits(merged.output), Bits(some.output));
    EXPECT_EQ(Bits(merged.lse), Bits(some.lse));
  }
}

TEST(Merge, EmptyEverywhereIsZeroAndMinusInf) {
  const Results a = Row(-kInf, kNan, kInf);
  const Results merged = MergeAll({&a, &a});
  EXPECT_THAT(merged.output.Elements(), ElementsAre(0.0f, 0.0f));
  EXPECT_EQ(merged.lse(0, 0, 0, 0), -kInf);
}

TEST(Merge, NanReachesItsRowOnly) {
  const Results fine = Row(1.0f, 2.0f, 3.0f);
  for (const float lse : {kNan, kInf}) {
    const Results bad = Row(lse, 1.0f, 1.0f);
    const Results merged = MergeAll({&fine, &bad});
    EXPECT_TRUE(std::isnan(merged.output(0, 0, 0, 0)) && std::isnan(merged.output(0, 0, 0, 1)));
    EXPECT_TRUE(std::isnan(merged.lse(0, 0, 0, 0)));
  }
  const Results half = Row(0.0f, kNan, 1.0f);
  const Results merged = MergeAll({&fine, &half});
  EXPECT_TRUE(std::isnan(merged.output(0, 0, 0, 0)));
  EXPECT_TRUE(std::isfinite(merged.output(0, 0, 0, 1)));
  EXPECT_TRUE(std::isfinite(merged.lse(0, 0, 0, 0)));
}

TEST(Merge, FarApartDenominatorsDoNotOverflow) {
  const Results low = Row(-3e38f, 1.0f, 1.0f);
  const Results high = Row(3e38f, 5.0f, 6.0f);
  const Results merged = MergeAll({&low, &high});
  EXPECT_THAT(merged.output.Elements(), ElementsAre(5.0f, 6.0f));
  EXPECT_EQ(merged.lse(0, 0, 0, 0), 3e38f);
}

TEST(Merge, MergesInPlace) {
  const AttentionCase c = MakeCase({.q_len = 70, .kv_len = 90});
  std::vector<Results> parts = DealKeys(c, 2, 3);
  const Results apart = MergeAll({&parts[0], &parts[1]});
  const PartialAttention states[] = {State(parts[0]), State(parts[1])};
  Merge(states, parts[1].output.view(), parts[1].lse.view());
  EXPECT_EQ(Bits(parts[1].output), Bits(apart.output));
  EXPECT_EQ(Bits(parts[1].lse), Bits(apart.lse));
}

TEST(Merge, SameBitsForAnyNumberOfThreads) {
  const AttentionCase c = MakeCase({.batch = 3, .q_len = 50, .kv_len = 64});
  const std::vector<Results> parts = DealKeys(c, 3, 1);
  const auto one = MakeThreadPool(1);
  const auto three = MakeThreadPool(3);
  const Results a = MergeAll({&parts[0], &parts[1], &parts[2]}, one.get());
  const Results b = MergeAll({&parts[0], &parts[1], &parts[2]}, three.get());
  EXPECT_EQ(Bits(a.output), Bits(b.output));
  EXPECT_EQ(Bits(a.lse), Bits(b.lse));
}

TEST(Merge, RefusesWhatDoesNotFit) {
  const Results a = Row(0, 1, 2);
  Results out = Row(0, 0, 0);
  EXPECT_THROW(Merge({}, out.output.view(), out.lse.view()), Error);
  Results wide = a;
  wide.output = Buffer<float>({1, 1, 1, 3}, Layout::kDense, 0.0f);
  const PartialAttention mixed[] = {State(a), State(wide)};
  EXPECT_THROW(Merge(mixed, out.output.view(), out.lse.view()), Error);
  const PartialAttention fine[] = {State(a)};
  EXPECT_THROW(Merge(fine, {}, out.lse.view()), Error);
  EXPECT_NO_THROW(Merge(fine, out.output.view(), {}));
}

}  // namespace
}  // namespace heed::testing
