// Native sparse attention: against the oracle, its three limits, choices by hand, what is refused.
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

class NativeSparse : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(NativeSparse);

void AddGates(RequestBuilder& builder, const SelectiveSizes& s, std::vector<float> one) {
  std::vector<float> gates;
  for (int64_t n = 0; n < s.batch * s.num_heads * s.q_len; ++n) {
    gates.insert(gates.end(), one.begin(), one.end());
  }
  builder.Floats("branch_gates", {s.batch, s.num_heads, s.q_len, 3}, gates);
}

RequestBuilder Sparse(const SelectiveSizes& s, std::vector<float> gates, uint64_t seed = 1) {
  RequestBuilder builder = SelectiveRequest("native_sparse", s, seed);
  AddGates(builder, s, std::move(gates));
  return builder;
}

RequestBuilder Causal(const SelectiveSizes& s, uint64_t seed = 1) {
  RequestBuilder builder = SelectiveRequest("scaled_dot_product", s, seed);
  builder.Param("causal", true);
  return builder;
}

TEST_P(NativeSparse, MatchesReference) {
  uint64_t seed = 1;
  for (const SelectiveSizes& s : CrossSizes()) {
    for (const double key_block : {4, 10, 64}) {
      RequestBuilder builder = Sparse(s, {0.5f, 0.8f, 0.3f}, seed++);
      builder.Param("compress_block", 8.0)
          .Param("compress_stride", 4.0)
          .Param("key_block", key_block)
          .Param("top_blocks", 5.0)
          .Param("window_len", 20.0);
      if (s.q_len != s.kv_len) builder.Param("query_offset", std::string("end"));
      ExpectChoiceMatchesOracle(builder.request(), "length " + std::to_string(s.kv_len), 2);
    }
  }
}

TEST_P(NativeSparse, WeightsAndLengthsMatchReference) {
  const SelectiveSizes s = {3, 4, 2, 40, 90, 8, 6};
  RequestBuilder builder = Sparse(s, {1, -0.5f, 0.25f});
  builder.Integers("key_lengths", {3}, {90, 0, 29})
      .Param("query_offset", std::vector<double>{50, 0, -7})
      .Floats("compress_k_weight", {2, 6}, Normals(12, 4))
      .Floats("compress_v_weight", {6}, Normals(6, 5))
      .Param("compress_block", 6.0)
      .Param("compress_stride", 4.0)
      .Param("key_block", 8.0)
      .Param("top_blocks", 4.0)
      .Param("window_len", 5.0);
  ExpectChoiceMatchesOracle(builder.request(), "lengths 90, 0 and 29", 4);
}

TEST_P(NativeSparse, ReducesToWindowedAttentionByItsGate) {
  const SelectiveSizes s = {1, 4, 2, 130, 130, 16, 16};
  RequestBuilder sparse = Sparse(s, {0, 0, 1}), window = Causal(s);
  sparse.Param("window_len", 9.0);
  window.Param("window_left", 8.0);
  ExpectSameOutput(sparse.request(), window.request());
}

TEST_P(NativeSparse, ReducesToCausalAttentionWhenAllBlocksAreSelected) {
  const SelectiveSizes s = {1, 4, 2, 130, 130, 16, 16};
  RequestBuilder sparse = Sparse(s, {0, 1, 0});
  sparse.Param("key_block", 8.0).Param("top_blocks", 17.0);
  ExpectSameOutput(sparse.request(), Causal(s).request());
}

TEST_P(NativeSparse, ReducesToCausalAttentionWhenNothingIsCompressed) {
  const SelectiveSizes s = {1, 4, 2, 130, 130, 16, 16};
  RequestBuilder sparse = Sparse(s, {1, 0, 0});
  sparse.Param("compress_block", 1.0).Param("compress_stride", 1.0);
  ExpectSameOutput(sparse.request(), Causal(s).request());
}

// One head on a line; values are the positions.
RequestBuilder OnALine(std::vector<float> k, std::vector<float> gates) {
  const int64_t len = static_cast<int64_t>(k.size());
  std::vector<float> v;
  for (int64_t j = 0; j < len; ++j) v.push_back(static_cast<float>(j));
  RequestBuilder builder("native_sparse");
  builder.Floats("q", {1, 1, len, 1}, std::vector<float>(k.size(), 1))
      .Floats("k", {1, 1, len, 1}, std::move(k))
      .Floats("v", {1, 1, len, 1}, std::move(v))
      .Param("compress_block", 2.0)
      .Param("compress_stride", 2.0)
      .Param("key_block", 2.0)
      .Param("top_blocks", 2.0)
      .Param("first_blocks", 0.0)
      .Param("local_blocks", 1.0)
      .Param("window_len", 2.0);
  AddGates(builder, {1, 1, 1, len, len}, std::move(gates));
  return builder;
}

TEST_P(NativeSparse, BranchesSeeWhatOneSeesByHand) {
  const std::vector<float> zeros(6, 0);
  // Whole pairs at or before the query.
  ExpectAllNear(RunByName(OnALine(zeros, {1, 0, 0}).request()).at("output"),
                {0, 0.5, 0.5, 1.5, 1.5, 2.5}, 1e-6);
  ExpectAllNear(RunByName(OnALine(zeros, {0, 0, 1}).request()).at("output"),
                {0, 0.5, 1.5, 2.5, 3.5, 4.5}, 1e-6);
  // The compressed key of the second pair is the largest: its block joins the own one.
  const double e = std::exp(5.0);
  const std::vector<double> selected =
      RunByName(OnALine({0, 0, 5, 5, 0, 0, 0, 0}, {0, 1, 0}).request()).at("output");
  EXPECT_NEAR(selected[7], (5 * e + 13) / (2 * e + 2), 1e-5);
  EXPECT_NEAR(selected[6], (5 * e + 6) / (2 * e + 1), 1e-5);
  EXPECT_NEAR(selected[1], 0.5, 1e-6);
}

TEST_P(NativeSparse, HeadsOfAGroupChooseTogether) {
  // The first head likes block 0, the second block 1 and more so: both see block 1.
  RequestBuilder builder("native_sparse");
  std::vector<float> q;
  for (int i = 0; i < 6; ++i) q.insert(q.end(), {1, 0});
  for (int i = 0; i < 6; ++i) q.insert(q.end(), {0, 1});
  builder.Floats("q", {1, 2, 6, 2}, q)
      .Floats("k", {1, 1, 6, 2}, {1, 0, 1, 0, 0, 9, 0, 9, 0, 0, 0, 0})
      .Floats("v", {1, 1, 6, 1}, {0, 0, 1, 1, 0, 0})
      .Param("scale", 1.0)
      .Param("compress_block", 2.0)
      .Param("compress_stride", 2.0)
      .Param("key_block", 2.0)
      .Param("top_blocks", 2.0)
      .Param("first_blocks", 0.0)
      .Param("local_blocks", 1.0);
  AddGates(builder, {1, 2, 1, 6, 6}, {0, 1, 0});
  const std::vector<double> output = RunByName(builder.request()).at("output");
  EXPECT_NEAR(output[5], 0.5, 1e-6);  // of the first head: two keys of block 1, two of its own
  EXPECT_GT(output[11], 0.99);
}

TEST_P(NativeSparse, WhatIsNotSeenCannotMatter) {
  std::vector<float> k = Normals(40 * 4, 3), v = Normals(40 * 4, 4);
  const auto run = [&](std::vector<float> gates) {
    RequestBuilder builder("native_sparse");
    builder.Floats("q", {1, 1, 6, 4}, Normals(24, 5))
        .Floats("k", {1, 1, 40, 4}, k)
        .Floats("v", {1, 1, 40, 4}, v)
        .Integers("key_lengths", {1}, {30})
        .Param("compress_block", 4.0)
        .Param("compress_stride", 2.0)
        .Param("key_block", 8.0)
        .Param("window_len", 3.0)
        .Param("query_offset", 10.0);
    AddGates(builder, {1, 1, 1, 6, 40}, std::move(gates));
    return RunByName(builder.request()).at("output");
  };
  const std::vector<double> before = run({1, 1, 1}), window = run({0, 0, 1});
  for (size_t n = 16 * 4; n < k.size(); ++n) k[n] = v[n] = kNan;
  EXPECT_EQ(run({1, 1, 1}), before);
  // Gates of 0 leave broken branches out.
  k[0] = kNan;
  EXPECT_EQ(run({0, 0, 1}), window);
}

TEST_P(NativeSparse, MemoryGrowsWithTheLength) {
  const auto bytes = [](int64_t len) {
    return ScratchBytes(Sparse({1, 2, 1, len, len, 8, 8}, {1, 1, 1}).request());
  };
  EXPECT_LT(bytes(8192), 2.5 * static_cast<double>(bytes(4096)));
}

TEST(NativeSparseRefuses, NumbersThatDoNotFit) {
  const SelectiveSizes s = {1, 1, 1, 4, 4, 2, 2};
  for (const char* name :
       {"compress_block", "compress_stride", "key_block", "top_blocks", "window_len"}) {
    RequestBuilder zero = Sparse(s, {1, 1, 1});
    zero.Param(name, 0.0);
    ExpectBothRefuse(zero.request(), ErrorCode::kRange, name);
  }
  RequestBuilder many = Sparse(s, {1, 1, 1});
  many.Param("top_blocks", 2.0);
  ExpectBothRefuse(many.request(), ErrorCode::kRange, "top_blocks");
  RequestBuilder weight = Sparse(s, {1, 1, 1});
  weight.Floats("compress_k_weight", {3}, {1, 1, 1});
  ExpectBothRefuse(weight.request(), ErrorCode::kShape, "compress_k_weight");
}

}  // namespace
}  // namespace heed::testing
