// Heavy hitters: the mechanism against the oracle, its limit, what is kept by hand, and the cache.
#include <algorithm>
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

class HeavyHitter : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(HeavyHitter);

RequestBuilder Heavy(const SelectiveSizes& s, double recent, double heavy, uint64_t seed = 1) {
  RequestBuilder builder = SelectiveRequest("heavy_hitter", s, seed);
  builder.Param("recent_tokens", recent).Param("heavy_tokens", heavy);
  return builder;
}

TEST_P(HeavyHitter, MatchesReference) {
  uint64_t seed = 1;
  for (const SelectiveSizes& s : SelfSizes()) {
    if (s.kv_len > 200) continue;
    for (const double recent : {1, 10}) {
      for (const double heavy : {1, 7}) {
        RequestBuilder builder = Heavy(s, recent, heavy, seed++);
        builder.Param("return_weights", true).Param("return_lse", true);
        ExpectChoiceMatchesOracle(builder.request(), "length " + std::to_string(s.kv_len));
      }
    }
  }
}

TEST_P(HeavyHitter, LengthsSinksAndSoftcapMatchReference) {
  RequestBuilder builder = Heavy({3, 4, 2, 60, 60, 8, 6}, 5, 4);
  builder.Integers("key_lengths", {3}, {60, 0, 29})
      .Floats("sinks", {4}, {0, 1, -1, 0.5f})
      .Param("softcap", 2.0)
      .Param("return_lse", true);
  ExpectChoiceMatchesOracle(builder.request(), "lengths 60, 0 and 29");
}

TEST_P(HeavyHitter, ReducesToCausalAttentionWhenNothingIsForgotten) {
  const SelectiveSizes s = {2, 4, 2, 70, 70, 8, 6};
  RequestBuilder exact = SelectiveRequest("scaled_dot_product", s, 9);
  exact.Param("causal", true);
  for (const double recent : {1, 20, 69}) {
    RequestBuilder heavy = Heavy(s, recent, 70 - recent, 9);
    ExpectSameOutput(heavy.request(), exact.request());
  }
  // Bounds beyond what a cache can be asked for.
  ExpectSameOutput(Heavy(s, 0x1p31, 1, 9).request(), exact.request());
  ExpectSameOutput(Heavy(s, 1, 0x1p53, 9).request(), exact.request());
}

TEST_P(HeavyHitter, KeepsWhatHasWeighedMostByHand) {
  // The first two tokens have scores of 0 and ln 9 with all queries, later ones 0. One recent token
  // and one heavy: after token 1 the sums are 1 + 0.1 and 0.9, so token 1 is forgotten when token 2
  // comes; after it the sums of tokens 0 and 2 are 1.6 and 0.5. Values are indices.
  RequestBuilder builder("heavy_hitter");
  builder.Floats("q", {1, 1, 4, 1}, {1, 1, 1, 1})
      .Floats("k", {1, 1, 4, 1}, {0, std::log(9.0f), 0, 0})
      .Floats("v", {1, 1, 4, 1}, {0, 1, 2, 3})
      .Param("recent_tokens", 1.0)
      .Param("heavy_tokens", 1.0)
      .Param("return_weights", true);
  const Values values = RunByName(builder.request());
  ExpectAllNear(values.at("output"), {0, 0.9, 1, 1.5}, 1e-6);
  ExpectAllNear(values.at("weights"), {1, 0, 0, 0, 0.1, 0.9, 0, 0, 0.5, 0, 0.5, 0, 0.5, 0, 0, 0.5},
                1e-6);
}

struct Drawn {
  std::vector<float> q = Normals(2 * 4 * 90 * 8, 1), k = Normals(2 * 2 * 90 * 8, 2),
                     v = Normals(2 * 2 * 90 * 6, 3);

  static TensorView<const float> Tokens(const std::vector<float>& all, int64_t heads, int64_t dim,
                                        int64_t begin, int64_t end) {
    TensorView<const float> view = Contiguous(all.data(), 2, heads, 90, dim);
    view.data += begin * dim;
    view.shape[2] = end - begin;
    return view;
  }
  void Append(KvCache& cache, int64_t begin, int64_t end) const {
    cache.Append(Tokens(k, 2, 8, begin, end), Tokens(v, 2, 6, begin, end));
  }
  std::vector<float> Decode(const KvCache& cache, int64_t begin, int64_t end) const {
    std::vector<float> output(static_cast<size_t>(2 * 4 * (end - begin) * 6), kNan);
    heed::Decode(Tokens(q, 4, 8, begin, end), cache, {},
                 {.output = Contiguous(output.data(), 2, 4, end - begin, 6)});
    return output;
  }
};

KvCache MakeCache(int64_t window, int64_t heavy_hitters, DType dtype = DType::kFloat32) {
  return KvCache({.batch = 2,
                  .num_kv_heads = 2,
                  .head_dim = 8,
                  .head_dim_v = 6,
                  .block_size = 4,
                  .dtype = dtype,
                  .recent_tokens = window,
                  .heavy_tokens = heavy_hitters});
}

TEST_P(HeavyHitter, CacheHoldsWhatTheMechanismSees) {
  const Drawn drawn;
  RequestBuilder builder("heavy_hitter");
  builder.Floats("q", {2, 4, 90, 8}, drawn.q)
      .Floats("k", {2, 2, 90, 8}, drawn.k)
      .Floats("v", {2, 2, 90, 6}, drawn.v)
      .Param("recent_tokens", 9.0)
      .Param("heavy_tokens", 5.0)
      .Param("return_weights", true);
  const Values expected = RunByName(builder.request());
  KvCache cache = MakeCache(9, 5);
  for (int64_t t = 0; t < 90; ++t) {
    drawn.Append(cache, t, t + 1);
    const std::vector<float> row = drawn.Decode(cache, t, t + 1);
    for (size_t n = 0; n < row.size(); ++n) {
      const size_t at = (n / 6 * 90 + static_cast<size_t>(t)) * 6 + n % 6;
      EXPECT_EQ(row[n], static_cast<float>(expected.at("output")[at]));
    }
    for (int64_t head = 0; head < 2; ++head) {
      std::vector<int64_t> seen;
      for (int64_t j = 0; j < 90; ++j) {
        // Query head 2 head of batch entry 1.
        const int64_t at = ((4 + 2 * head) * 90 + t) * 90 + j;
        if (expected.at("weights")[static_cast<size_t>(at)] > 0) seen.push_back(j);
      }
      EXPECT_EQ(cache.tokens(1, head), seen);
    }
  }
  EXPECT_EQ(cache.length(0), 90);
  EXPECT_EQ(cache.memory().blocks, 2 * 4);  // 14 tokens in blocks of 4
}

TEST_P(HeavyHitter, PromptIsAttendedWholeAndForgottenWhenMoreComes) {
  const Drawn drawn;
  KvCache cache = MakeCache(9, 5),
          whole = KvCache({.batch = 2, .num_kv_heads = 2, .head_dim = 8, .head_dim_v = 6});
  drawn.Append(cache, 0, 60);
  drawn.Append(whole, 0, 60);
  const std::vector<float> expected = drawn.Decode(whole, 0, 60);
  const std::vector<float> actual = drawn.Decode(cache, 0, 60);
  for (size_t n = 0; n < actual.size(); ++n) EXPECT_NEAR(actual[n], expected[n], 1e-5);
  EXPECT_EQ(cache.tokens(0, 0).size(), 60u);
  drawn.Append(cache, 60, 61);
  const std::vector<int64_t> held = cache.tokens(0, 1);
  ASSERT_EQ(held.size(), 14u);
  for (int64_t n = 0; n < 9; ++n) EXPECT_EQ(held[static_cast<size_t>(5 + n)], 52 + n);

  // The five others are those with the largest sums of the prompt's weights.
  RequestBuilder builder("scaled_dot_product");
  builder.Floats("q", {2, 4, 90, 8}, drawn.q)
      .Floats("k", {2, 2, 90, 8}, drawn.k)
      .Floats("v", {2, 2, 90, 6}, drawn.v)
      .Param("causal", true)
      .Param("return_weights", true);
  const std::vector<double> weights = RunOracle(builder.request()).at("weights");
  std::vector<std::pair<double, int64_t>> sums;
  for (int64_t j = 0; j < 52; ++j) {
    double sum = 0;
    for (int64_t h = 2; h < 4; ++h) {
      for (int64_t i = 0; i < 60; ++i) sum += weights[static_cast<size_t>((h * 90 + i) * 90 + j)];
    }
    sums.emplace_back(-sum, j);
  }
  std::ranges::sort(sums);
  std::vector<int64_t> heaviest;
  for (size_t n = 0; n < 5; ++n) heaviest.push_back(sums[n].second);
  std::ranges::sort(heaviest);
  EXPECT_EQ(std::vector<int64_t>(held.begin(), held.begin() + 5), heaviest);
}

TEST_P(HeavyHitter, ForksForgetOnTheirOwn) {
  const Drawn drawn;
  KvCache cache = MakeCache(9, 5), alone = MakeCache(9, 5);
  const auto feed = [&](KvCache& to, int64_t begin, int64_t end) {
    std::vector<float> last;
    for (int64_t t = begin; t < end; ++t) {
      drawn.Append(to, t, t + 1);
      last = drawn.Decode(to, t, t + 1);
    }
    return last;
  };
  feed(cache, 0, 40);
  KvCache fork = cache.Fork();
  feed(fork, 60, 90);  // other tokens, which must not reach the cache they began with
  EXPECT_EQ(feed(cache, 40, 60), feed(alone, 0, 60));
  EXPECT_EQ(cache.tokens(0, 0), alone.tokens(0, 0));
}

TEST_P(HeavyHitter, EveryStorageTypeMovesItsScales) {
  const Drawn drawn;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kInt8, DType::kFloat8E4M3}) {
    KvCache cache = MakeCache(9, 5, dtype), floats = MakeCache(9, 5);
    double far = 0;
    for (int64_t t = 0; t < 30; ++t) {
      drawn.Append(cache, t, t + 1);
      drawn.Append(floats, t, t + 1);
      const std::vector<float> a = drawn.Decode(cache, t, t + 1);
      const std::vector<float> b = drawn.Decode(floats, t, t + 1);
      // Roundings may tip a choice later on; until then only they differ.
      if (cache.tokens(0, 0) != floats.tokens(0, 0) || cache.tokens(0, 1) != floats.tokens(0, 1) ||
          cache.tokens(1, 0) != floats.tokens(1, 0) || cache.tokens(1, 1) != floats.tokens(1, 1)) {
        EXPECT_GT(t, 14);
        break;
      }
      for (size_t n = 0; n < a.size(); ++n) far = std::max<double>(far, std::abs(a[n] - b[n]));
    }
    EXPECT_LT(far, 0.3);
    EXPECT_GT(far, 0);
  }
}

TEST_P(HeavyHitter, WhatWasForgottenCannotMatter) {
  std::vector<float> k = Normals(40 * 4, 3), v = Normals(40 * 4, 4);
  const auto run = [&] {
    RequestBuilder builder("heavy_hitter");
    builder.Floats("q", {1, 1, 40, 4}, Normals(160, 5))
        .Floats("k", {1, 1, 40, 4}, k)
        .Floats("v", {1, 1, 40, 4}, v)
        .Integers("key_lengths", {1}, {30})
        .Param("recent_tokens", 4.0)
        .Param("heavy_tokens", 3.0);
    return RunByName(builder.request()).at("output");
  };
  const std::vector<double> before = run();
  for (size_t n = 30 * 4; n < k.size(); ++n) k[n] = v[n] = kNan;
  EXPECT_EQ(run(), before);
  for (size_t n = 30 * 4; n < before.size(); ++n) EXPECT_EQ(before[n], 0.0);
}

TEST(HeavyHitterRefuses, WhatMakesNoSense) {
  const SelectiveSizes s = {1, 1, 1, 4, 4, 2, 2};
  RequestBuilder none = Heavy(s, 0, 1), heavy = Heavy(s, 1, 0);
  ExpectBothRefuse(none.request(), ErrorCode::kRange, "recent_tokens");
  ExpectBothRefuse(heavy.request(), ErrorCode::kRange, "heavy_tokens");
  RequestBuilder cross = Heavy({1, 1, 1, 2, 4, 2, 2}, 1, 1);
  ExpectBothRefuse(cross.request(), ErrorCode::kShape, "kv_len");
  EXPECT_THROW(KvCache({.head_dim = 4, .heavy_tokens = 3}), Error);  // no window
  const Drawn drawn;
  KvCache cache = MakeCache(9, 5);
  drawn.Append(cache, 0, 40);
  drawn.Append(cache, 40, 42);
  EXPECT_THROW(cache.Rewind(0, 30), Error);
  EXPECT_THROW(drawn.Decode(cache, 39, 42), Error);  // more queries than were appended last
  float memory[40 * 8] = {};
  EXPECT_THROW(
      cache.Read(0, 0, 2, Contiguous(memory, 1, 2, 2, 8), Contiguous(memory + 64, 1, 2, 2, 6)),
      Error);
  const std::vector<float> slopes(4, 0.5f);
  DecodeOptions alibi;
  alibi.alibi_slopes = slopes;
  EXPECT_THROW(Decode(Drawn::Tokens(drawn.q, 4, 8, 40, 42), cache, alibi,
                      {.output = Contiguous(memory, 2, 4, 2, 6)}),
               Error);
  EXPECT_THROW(cache.tokens(0, 2), Error);
}

}  // namespace
}  // namespace heed::testing
