// Gradients over ranks are those of the whole.
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
      EXPECT_LE(LargestError(ranks.d_table, whole.d_table), kBound);
      EXPECT_LE(LargestError(ranks.d_other_table, whole.d_other_table), kBound);
      EXPECT_LE(LargestError(ranks.d_slopes, whole.d_slopes), kBound);
      EXPECT_LE(LargestError(ranks.d_sinks, whole.d_sinks), kBound);
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
  EXPECT_EQ(one.d_table.Elements(), three.d_table.Elements());
  EXPECT_EQ(one.d_slopes, three.d_slopes);
  EXPECT_EQ(one.d_sinks, three.d_sinks);
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
