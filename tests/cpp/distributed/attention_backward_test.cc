// Gradients over ranks are those of the whole.
#include <cmath>
#include <limits>
#include <string>

#include "distributed/local_ranks.h"
#include "distributed/ring_case.h"
#include "distributed/shards.h"
#include "gtest/gtest.h"
#include "heed/distributed.h"
#include "heed/thread_pool.h"

namespace heed::testing {
namespace {

using distributed::TokenOrder;

// Both calls are within kGradientMaxError of the reference.
constexpr double kBound = 2 * kGradientMaxError;

class RingBackward : public ::testing::TestWithParam<RingVariant> {};
INSTANTIATE_TEST_SUITE_P(Options, RingBackward, ::testing::ValuesIn(RingVariants()),
                         [](const auto& variant) { return std::string(variant.param.name); });

TEST_P(RingBackward, IsTheGradientOfTheWhole) {
  for (const TokenOrder order : {TokenOrder::kContiguous, TokenOrder::kZigzag}) {
    RingCase c;
    GetParam().apply(c);
    c.sharding.order = order;
    c.DrawTensors();
    const RingResults forward = RunWhole(c);
    const auto d_out = NormalBuffer(forward.output.shape(), 5);
    const auto d_lse = NormalBuffer(forward.lse.shape(), 6);
    const RingGradients whole = RunWholeBackward(c, forward, d_out, d_lse);
    for (int size = 1; size <= 4; ++size) {
      SCOPED_TRACE(std::to_string(size) + " ranks, order " +
                   std::to_string(static_cast<int>(order)));
      const RingGradients ranks = RunBackwardOverRanks(c, forward, d_out, d_lse, size);
      EXPECT_LE(LargestError(ranks.d_q, whole.d_q), kBound);
      EXPECT_LE(LargestError(ranks.d_k, whole.d_k), kBound);
      EXPECT_LE(LargestError(ranks.d_v, whole.d_v), kBound);
      ASSERT_EQ(ranks.d_tables.size(), whole.d_tables.size());
      for (size_t n = 0; n < ranks.d_tables.size(); ++n) {
        EXPECT_LE(LargestError(ranks.d_tables[n], whole.d_tables[n]), kBound) << "table " << n;
      }
      ASSERT_EQ(ranks.d_lists.size(), whole.d_lists.size());
      for (size_t n = 0; n < ranks.d_lists.size(); ++n) {
        EXPECT_LE(LargestError(ranks.d_lists[n], whole.d_lists[n]), kBound) << "list " << n;
      }
    }
  }
}

TEST_P(RingBackward, SameBitsForAnyNumberOfThreads) {
  RingCase c;
  GetParam().apply(c);
  c.DrawTensors();
  const RingResults forward = RunWhole(c);
  const auto d_out = NormalBuffer(forward.output.shape(), 5);
  const auto d_lse = NormalBuffer(forward.lse.shape(), 6);
  const RingGradients one = RunBackwardOverRanks(c, forward, d_out, d_lse, 3, 1);
  const RingGradients three = RunBackwardOverRanks(c, forward, d_out, d_lse, 3, 3);
  EXPECT_EQ(one.d_q.Elements(), three.d_q.Elements());
  EXPECT_EQ(one.d_k.Elements(), three.d_k.Elements());
  EXPECT_EQ(one.d_v.Elements(), three.d_v.Elements());
  for (size_t n = 0; n < one.d_tables.size(); ++n) {
    EXPECT_EQ(one.d_tables[n].Elements(), three.d_tables[n].Elements());
  }
  EXPECT_EQ(one.d_lists, three.d_lists);
}

// What is masked cannot matter, backwards too; a sink of -inf has no gradient, whatever arrives.
TEST(RingBackwardEdges, NanReachesOnlyWhatSeesIt) {
  RingCase c;
  c.options.causal = true;
  c.numbers = {-std::numeric_limits<float>::infinity(), 0, 0, 0};
  c.options.sinks = c.numbers;
  c.DrawTensors();
  c.k(0, 0, 50, 1) = std::numeric_limits<float>::quiet_NaN();
  const RingResults forward = RunWhole(c);
  auto d_out = NormalBuffer(forward.output.shape(), 5);
  const auto d_lse = NormalBuffer(forward.lse.shape(), 6);
  d_out(1, 0, 20, 2) = std::numeric_limits<float>::quiet_NaN();
  const RingGradients whole = RunWholeBackward(c, forward, d_out, d_lse);
  const RingGradients ranks = RunBackwardOverRanks(c, forward, d_out, d_lse, 3);
  const auto expect_same_nan = [](const Buffer<float>& a, const Buffer<float>& b) {
    const auto left = a.Elements(), right = b.Elements();
    int64_t finite = 0;
    for (size_t n = 0; n < left.size(); ++n) {
      EXPECT_EQ(std::isnan(left[n]), std::isnan(right[n])) << n;
      finite += std::isfinite(left[n]) ? 1 : 0;
    }
    EXPECT_GT(finite, 0);
    EXPECT_LT(finite, static_cast<int64_t>(left.size()));
  };
  expect_same_nan(ranks.d_q, whole.d_q);
  expect_same_nan(ranks.d_k, whole.d_k);
  expect_same_nan(ranks.d_v, whole.d_v);
  EXPECT_EQ(ranks.d_lists[0][0], 0.0f);
  EXPECT_EQ(whole.d_lists[0][0], 0.0f);
}

// Sums over ranks are the same bits on each of them.
TEST(RingBackwardEdges, EveryRankHasTheSameSums) {
  RingCase c;
  c.numbers = {0.5f, 1, -1, 2};
  c.options.sinks = c.numbers;
  c.DrawTensors();
  const RingResults forward = RunWhole(c);
  const auto d_out = NormalBuffer(forward.output.shape(), 5);
  std::vector<std::vector<float>> sums(3, std::vector<float>(4, 0.0f));
  RunRanksWell(3, [&](distributed::Communicator& communicator) {
    const int rank = communicator.Rank();
    const TokenOrder order = c.sharding.order;
    const auto q = PartOf(c.q, rank, 3, order), k = PartOf(c.k, rank, 3, order);
    const auto v = PartOf(c.v, rank, 3, order), out = PartOf(forward.output, rank, 3, order);
    const auto lse = PartOf(forward.lse, rank, 3, order), arriving = PartOf(d_out, rank, 3, order);
    AttentionGradients to;
    to.d_sinks = sums[static_cast<size_t>(rank)];
    distributed::AttentionBackward(q.view(), k.view(), v.view(), out.view(), lse.view(),
                                   arriving.view(), c.options, to, c.sharding, communicator);
  });
  EXPECT_NE(sums[0][0], 0.0f);
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

}  // namespace
}  // namespace heed::testing
