#include "native_bench/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

Case LongRecurrence(const char* mechanism, DType dtype) {
  Case c;
  c.mechanism = mechanism;
  c.batch = 3;
  c.heads = {4, 2};
  c.lengths = {1100, 1100};
  c.head_dim = 48;
  c.dtype = dtype;
  return c;
}

TEST(Verify, LongRecurrencesShowTheirFirstAndLastColumns) {
  const auto pool = MakeThreadPool(1);
  for (const char* mechanism : {"linear", "retention", "lightning", "mamba2", "gated_linear",
                                "gated_delta_rule", "kimi_delta", "rwkv6", "rwkv7", "performer"}) {
    Problem problem(LongRecurrence(mechanism, DType::kFloat32), 1);
    const Oracle oracle(problem);
    problem.FillOutputWithNan();
    EXPECT_FALSE(oracle.Compare(problem).Passed()) << mechanism;
    FindPeer("heed")->prepare(problem, *pool)();
    const Verdict verdict = oracle.Compare(problem);
    EXPECT_TRUE(verdict.Passed()) << mechanism << ": " << verdict.max_error << " > "
                                  << verdict.bound;
    EXPECT_EQ(verdict.rows, 2 * 4 * 1100);  // of the first and the last batch entry
    float& last = problem.output()(2, 3, 1099, 47);
    last += static_cast<float>(2 * verdict.bound) + std::abs(last);
    EXPECT_FALSE(oracle.Compare(problem).Passed()) << mechanism;
  }
}

TEST(Verify, RecurrencesOfTwoBytesMayRoundTheirOutput) {
  const auto pool = MakeThreadPool(1);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    Problem problem(LongRecurrence("retention", dtype), 1);
    const Oracle oracle(problem);
    FindPeer("heed")->prepare(problem, *pool)();
    const Verdict verdict = oracle.Compare(problem);
    EXPECT_TRUE(verdict.Passed()) << verdict.max_error << " > " << verdict.bound;
    EXPECT_GT(verdict.max_error, 1e-5);
  }
}

// A head that forgets fast has small results: an error as small as it is must not hide behind the
// results of another.
TEST(Verify, EveryColumnHasABoundOfItsOwn) {
  const auto pool = MakeThreadPool(1);
  Problem problem(LongRecurrence("lightning", DType::kBFloat16), 1);
  const Oracle oracle(problem);
  FindPeer("heed")->prepare(problem, *pool)();
  const OwnedTensor& output = problem.stored_output();
  const int64_t head = 1100 * 48;  // numbers of one
  const auto largest = [&](int64_t from) {
    float most = 0;
    for (int64_t i = 0; i < head; i += 48)
      most = std::max(most, std::abs(problem.OutputAt(from + i)));
    return most;
  };
  ASSERT_LT(3 * largest(0), largest(3 * head));
  const float wrong = problem.OutputAt(0) + 0.03f * largest(3 * head) / 4;
  ASSERT_TRUE(oracle.Compare(problem).Passed());
  output.halves()[0] = ToBFloat16(wrong).bits;
  EXPECT_FALSE(oracle.Compare(problem).Passed());
}

TEST(Verify, SpreadQueriesHoldsBothEnds) {
  EXPECT_THAT(SpreadQueries(100, 4), ElementsAre(0, 33, 66, 99));
  EXPECT_THAT(SpreadQueries(3, 8), ElementsAre(0, 1, 2));
  EXPECT_THAT(SpreadQueries(9, 1), ElementsAre(0));
}

}  // namespace
}  // namespace heed::bench
