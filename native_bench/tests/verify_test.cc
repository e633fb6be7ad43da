#include "native_bench/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "heed/thread_pool.h"

namespace heed::bench {
namespace {

using ::testing::ElementsAre;

Case SmallCase(Mask mask) {
  Case c;
  c.mechanism = "scaled_dot_product";
  c.heads = {4, 2};
  c.lengths = {33, 50};
  c.head_dim = 48;
  c.mask = mask;
  return c;
}

Verdict VerifyWith(std::function<void()> (*prepare)(Problem&, ThreadPool&)) {
  const Peer peer = {
      .id = "made_up", .summary = "", .details = nullptr, .refuse = nullptr, .prepare = prepare};
  const auto pool = MakeThreadPool(1);
  return VerifySmall(peer, SmallCase(Mask::kFull), 1, *pool);
}

TEST(Verify, EveryPeerPassesOrRefuses) {
  const auto pool = MakeThreadPool(2);
  for (const Peer& peer : Peers()) {
    for (const Mask mask : {Mask::kFull, Mask::kCausal}) {
      const Case c = SmallCase(mask);
      if (!peer.refuse(c).empty()) continue;
      const Verdict verdict = VerifySmall(peer, c, 1, *pool);
      EXPECT_TRUE(verdict.Passed()) << peer.id << " " << c.Name() << ": " << verdict.failure
                                    << verdict.max_error << " > " << verdict.bound;
      EXPECT_EQ(verdict.rows, 4 * 33);
    }
  }
}

TEST(Verify, RowsWithoutKeysAreZero) {
  const auto pool = MakeThreadPool(1);
  Case c = SmallCase(Mask::kCausal);
  c.lengths = {50, 33};
  for (const Peer& peer : Peers()) {
    if (!peer.refuse(c).empty()) continue;
    EXPECT_TRUE(VerifySmall(peer, c, 1, *pool).Passed()) << peer.id;
  }
}

TEST(Verify, WrongOutputFails) {
  const Verdict verdict = VerifyWith([](Problem& problem, ThreadPool&) -> std::function<void()> {
    return [&problem] { std::fill_n(problem.output().data, problem.output().size(), 0.0f); };
  });
  EXPECT_FALSE(verdict.Passed());
}

TEST(Verify, UntouchedOutputFails) {
  const Verdict verdict =
      VerifyWith([](Problem&, ThreadPool&) -> std::function<void()> { return [] {}; });
  EXPECT_FALSE(verdict.Passed());
  EXPECT_EQ(verdict.max_error, std::numeric_limits<double>::infinity());
}

TEST(Verify, AnExceptionFailsAndIsReported) {
  const Verdict verdict = VerifyWith([](Problem&, ThreadPool&) -> std::function<void()> {
    throw std::runtime_error("no such luck");
  });
  EXPECT_FALSE(verdict.Passed());
  EXPECT_EQ(verdict.failure, "no such luck");
}

TEST(Verify, SampledRowsOfALargeProblemMatchTheWhole) {
  Case c = SmallCase(Mask::kCausal);
  c.lengths = {1500, 1500};
  const auto pool = MakeThreadPool(1);
  Problem problem(c, 1);
  const Oracle oracle(problem);
  FindPeer("plain_loops")->prepare(problem, *pool)();
  const Verdict verdict = oracle.Compare(problem);
  EXPECT_TRUE(verdict.Passed()) << verdict.max_error;
  EXPECT_EQ(verdict.rows, Oracle::kMostRows);
  // The last row is among the sampled ones, so a fault there shows.
  problem.output()(0, 3, 1499, 47) += 1e-3f;
  EXPECT_FALSE(oracle.Compare(problem).Passed());
}

TEST(Verify, SpreadQueriesHoldsBothEnds) {
  EXPECT_THAT(SpreadQueries(100, 4), ElementsAre(0, 33, 66, 99));
  EXPECT_THAT(SpreadQueries(3, 8), ElementsAre(0, 1, 2));
  EXPECT_THAT(SpreadQueries(9, 1), ElementsAre(0));
}

}  // namespace
}  // namespace heed::bench
