// Sinkhorn attention: against the oracle, its limits, causality, and what it refuses.
#include <cmath>
#include <limits>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/cost.h"
#include "heed/selective.h"
#include "selective_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

class Sinkhorn : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Sinkhorn);

TEST_P(Sinkhorn, MatchesReference) {
  uint64_t seed = 1;
  for (const SelectiveSizes& s : SelfSizes()) {
    for (const double key_block : {s.q_len > 100 ? 5 : 1, 7, 32}) {
      for (const bool causal : {true, false}) {
        RequestBuilder builder = SelectiveRequest("sinkhorn", s, seed++);
        builder.Param("key_block", key_block).Param("causal", causal);
        ExpectChoiceMatchesOracle(
            builder.request(),
            "length " + std::to_string(s.kv_len) + ", blocks of " + std::to_string(key_block), 4);
      }
    }
  }
}

TEST_P(Sinkhorn, LengthsAndGivenLogitsMatchReference) {
  const SelectiveSizes s = {3, 4, 2, 50, 50, 8, 6};
  for (const bool causal : {true, false}) {
    RequestBuilder builder = SelectiveRequest("sinkhorn", s, 2);
    builder.Integers("key_lengths", {3}, {50, 0, 29})
        .Floats("sort_logits", {3, 4, 7, 7}, Normals(3 * 4 * 49, 9))
        .Param("key_block", 8.0)
        .Param("sort_iterations", 3.0)
        .Param("sort_temperature", 0.5)
        .Param("causal", causal);
    ExpectChoiceMatchesOracle(builder.request(), "lengths 50, 0 and 29", 4);
  }
}

TEST_P(Sinkhorn, ReducesToScaledDotProductWhenTwoBlocksChangePlaces) {
  const SelectiveSizes s = {1, 2, 1, 48, 48, 12, 9};
  RequestBuilder sorted = SelectiveRequest("sinkhorn", s, 3);
  sorted.Floats("sort_logits", {1, 2, 2, 2}, {0, 99, 99, 0, 0, 99, 99, 0}).Param("key_block", 24.0);
  ExpectSameOutput(sorted.request(), SelectiveRequest("scaled_dot_product", s, 3).request(), 4);
}

TEST_P(Sinkhorn, ReducesToCausalAttentionWhenTheFirstBlockComesSecond) {
  const SelectiveSizes s = {1, 2, 1, 48, 48, 12, 9};
  RequestBuilder sorted = SelectiveRequest("sinkhorn", s, 3);
  RequestBuilder exact = SelectiveRequest("scaled_dot_product", s, 3);
  sorted.Param("key_block", 24.0).Param("causal", true);
  exact.Param("causal", true);
  ExpectSameOutput(sorted.request(), exact.request(), 4);
}

TEST_P(Sinkhorn, BlocksBeyondAllTokensCostNoMore) {
  const SelectiveSizes s = {2, 4, 2, 37, 37, 8, 6};
  for (const bool causal : {true, false}) {
    const auto run = [&](double key_block) {
      RequestBuilder builder = SelectiveRequest("sinkhorn", s, 4);
      builder.Param("key_block", key_block).Param("causal", causal);
      return builder;
    };
    ExpectChoiceMatchesOracle(run(1e9).request(), "a block of 1e9 tokens", 4);
    EXPECT_EQ(RunByName(run(1e9).request()), RunByName(run(38).request()));
    ExpectSameOutput(run(1e9).request(), run(37).request(), 4);
    EXPECT_EQ(EstimateCost(run(1e9).request(), 1).scratch_bytes,
              EstimateCost(run(38).request(), 1).scratch_bytes);
  }
}

TEST_P(Sinkhorn, EvenSharesAreMeansByHand) {
  // Logits of 0 balance to 1/2: sorted values are 1 and 2 in every slot, the own ones as they are.
  RequestBuilder builder("sinkhorn");
  builder.Floats("q", {1, 1, 4, 1}, {1, 1, 1, 1})
      .Floats("k", {1, 1, 4, 1}, {0, 0, 0, 0})
      .Floats("v", {1, 1, 4, 1}, {0, 1, 2, 3})
      .Floats("sort_logits", {1, 1, 2, 2}, {0, 0, 0, 0})
      .Param("key_block", 2.0);
  ExpectAllNear(RunByName(builder.request()).at("output"), {1, 1, 2, 2}, 1e-6);
  // What may come nowhere leaves blocks to themselves.
  RequestBuilder alone("sinkhorn");
  alone.Floats("q", {1, 1, 4, 1}, {1, 1, 1, 1})
      .Floats("k", {1, 1, 4, 1}, {0, 0, 0, 0})
      .Floats("v", {1, 1, 4, 1}, {0, 1, 2, 3})
      .Floats("sort_logits", {1, 1, 2, 2}, std::vector<float>(4, kMinusInf))
      .Param("key_block", 2.0);
  ExpectAllNear(RunByName(alone.request()).at("output"), {0.5, 0.5, 2.5, 2.5}, 1e-6);
}

TEST_P(Sinkhorn, CausalRowsDoNotLookAhead) {
  std::vector<float> q = Normals(50 * 4, 2), k = Normals(50 * 4, 3), v = Normals(50 * 4, 4);
  const auto run = [&](int32_t length) {
    RequestBuilder builder("sinkhorn");
    builder.Floats("q", {1, 1, 50, 4}, q)
        .Floats("k", {1, 1, 50, 4}, k)
        .Floats("v", {1, 1, 50, 4}, v)
        .Integers("key_lengths", {1}, {length})
        .Param("key_block", 8.0)
        .Param("causal", true);
    return RunByName(builder.request()).at("output");
  };
  const std::vector<double> before = run(50);
  for (size_t n = 33 * 4; n < k.size(); ++n) q[n] = k[n] = v[n] = kNan;
  const std::vector<double> after = run(50);
  for (size_t n = 0; n < 33 * 4; ++n) EXPECT_EQ(after[n], before[n]) << n;
  // Beyond the length nothing exists.
  const std::vector<double> shorter = run(33);
  for (size_t n = 0; n < 33 * 4; ++n) EXPECT_EQ(shorter[n], before[n]) << n;
  for (size_t n = 33 * 4; n < 50 * 4; ++n) EXPECT_EQ(shorter[n], 0) << n;
}

TEST(SinkhornRefuses, WhatCannotBeSorted) {
  RequestBuilder zero = SelectiveRequest("sinkhorn", {}, 1);
  zero.Param("key_block", 0.0);
  ExpectBothRefuse(zero.request(), ErrorCode::kRange, "key_block");
  RequestBuilder cold = SelectiveRequest("sinkhorn", {}, 1);
  cold.Param("sort_temperature", 0.0);
  ExpectBothRefuse(cold.request(), ErrorCode::kRange, "sort_temperature");
  RequestBuilder none = SelectiveRequest("sinkhorn", {}, 1);
  none.Param("sort_iterations", 0.0);
  ExpectBothRefuse(none.request(), ErrorCode::kRange, "sort_iterations");
  RequestBuilder cross = SelectiveRequest("sinkhorn", {1, 1, 1, 4, 8}, 1);
  ExpectBothRefuse(cross.request(), ErrorCode::kShape, "k");
}

}  // namespace
}  // namespace heed::testing
