// Streaming attention: against the oracle, its limit, what is seen by hand, and the cache.
#include <cmath>
#include <limits>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/cache.h"
#include "heed/cache_policy.h"
#include "selective_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Streaming : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Streaming);

RequestBuilder Stream(const SelectiveSizes& s, double recent, double sinks, uint64_t seed = 1) {
  RequestBuilder builder = SelectiveRequest("streaming", s, seed);
  builder.Param("recent_tokens", recent).Param("sink_tokens", sinks);
  return builder;
}

TEST_P(Streaming, MatchesReference) {
  uint64_t seed = 1;
  for (const SelectiveSizes& s : CrossSizes()) {
    for (const double recent : {1, 10, 300}) {
      for (const double sinks : {0, 4}) {
        RequestBuilder builder = Stream(s, recent, sinks, seed++);
        builder.Param("return_weights", true).Param("return_lse", true);
        if (s.q_len != s.kv_len) builder.Param("query_offset", std::string("end"));
        ExpectChoiceMatchesOracle(builder.request(), "recent " + std::to_string(recent));
      }
    }
  }
}

TEST_P(Streaming, ReducesToCausalAttentionWhenAllTokensAreRecent) {
  for (const SelectiveSizes& s : SelfSizes()) {
    RequestBuilder streaming = Stream(s, 100000, 4, 9);
    RequestBuilder exact = SelectiveRequest("scaled_dot_product", s, 9);
    exact.Param("causal", true);
    ExpectSameOutput(streaming.request(), exact.request());
  }
}

TEST_P(Streaming, SeesTheFirstAndTheLastTokens) {
  // Equal weights: the output is the mean index of what is seen.
  RequestBuilder builder("streaming");
  builder.Floats("q", {1, 1, 6, 1}, std::vector<float>(6, 0.0f))
      .Floats("k", {1, 1, 6, 1}, std::vector<float>(6, 0.0f))
      .Floats("v", {1, 1, 6, 1}, {0, 1, 2, 3, 4, 5})
      .Param("recent_tokens", 2.0)
      .Param("sink_tokens", 1.0);
  ExpectAllNear(RunByName(builder.request()).at("output"), {0, 0.5, 1, 5.0 / 3, 7.0 / 3, 3}, 1e-6);
}

TEST_P(Streaming, DecodingTokenByTokenOverACacheDoesTheSame) {
  const SelectiveSizes s = {2, 4, 2, 90, 90, 8, 6};
  const std::vector<float> q = Normals(2 * 4 * 90 * 8, 1), k = Normals(2 * 2 * 90 * 8, 2),
                           v = Normals(2 * 2 * 90 * 6, 3);
  RequestBuilder builder("streaming");
  builder.Floats("q", {2, 4, 90, 8}, q)
      .Floats("k", {2, 2, 90, 8}, k)
      .Floats("v", {2, 2, 90, 6}, v)
      .Param("recent_tokens", 10.0)
      .Param("sink_tokens", 3.0);
  const std::vector<double> expected = RunByName(builder.request()).at("output");
  KvCache cache({.batch = 2,
                 .num_kv_heads = 2,
                 .head_dim = 8,
                 .head_dim_v = 6,
                 .block_size = 4,
                 .recent_tokens = 10,
                 .sink_tokens = 3});
  std::vector<float> row(2 * 4 * 6);
  const auto token = [](const std::vector<float>& all, int64_t heads, int64_t dim, int64_t t) {
    TensorView<const float> view = Contiguous(all.data(), 2, heads, 90, dim);
    view.data += t * dim;
    view.shape[2] = 1;
    return view;
  };
  for (int64_t t = 0; t < s.kv_len; ++t) {
    cache.Append(token(k, 2, 8, t), token(v, 2, 6, t));
    Decode(token(q, 4, 8, t), cache, {}, {.output = Contiguous(row.data(), 2, 4, 1, 6)});
    for (size_t n = 0; n < row.size(); ++n) {
      EXPECT_NEAR(row[n], expected[(n / 6 * 90 + static_cast<size_t>(t)) * 6 + n % 6], 1e-5);
    }
  }
  EXPECT_LE(cache.memory().blocks, 2 * 5);  // 3 sinks, 10 tokens, blocks of 4
}

TEST_P(Streaming, WhatFellOutOfTheWindowMayBeAnything) {
  std::vector<float> k = Normals(40 * 4, 3), v = Normals(40 * 4, 4);
  const auto run = [&] {
    RequestBuilder builder("streaming");
    builder.Floats("q", {1, 1, 6, 4}, Normals(24, 5))
        .Floats("k", {1, 1, 40, 4}, k)
        .Floats("v", {1, 1, 40, 4}, v)
        .Param("recent_tokens", 8.0)
        .Param("sink_tokens", 2.0)
        .Param("query_offset", std::string("end"));
    return RunByName(builder.request()).at("output");
  };
  const std::vector<double> before = run();
  for (size_t n = 2 * 4; n < 27 * 4; ++n) k[n] = v[n] = kNan;
  EXPECT_EQ(run(), before);
}

TEST(StreamingRefuses, BadCounts) {
  const SelectiveSizes s = {1, 1, 1, 4, 4, 2, 2};
  RequestBuilder none = Stream(s, 0, 1);
  ExpectBothRefuse(none.request(), ErrorCode::kRange, "recent_tokens");
  RequestBuilder lengths = Stream(s, 2, 1);
  lengths.Integers("key_lengths", {1, 4}, {1, 2, 3, 4});
  ExpectBothRefuse(lengths.request(), ErrorCode::kUnsupported, "key_lengths");
  RequestBuilder offset = Stream({1, 1, 1, 2, 4, 2, 2}, 2, 1);
  ExpectBothRefuse(offset.request(), ErrorCode::kOption, "query_offset");
}

}  // namespace
}  // namespace heed::testing
