// Attention over a cache: equal to attention over the tokens it holds, whatever its blocks.
#include <cmath>
#include <limits>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "cache/cache_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/cache.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class Decoding : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Decoding);

constexpr Sizes kSizes = {.batch = 2,
                          .num_heads = 4,
                          .num_kv_heads = 2,
                          .q_len = 150,
                          .kv_len = 150,
                          .head_dim = 40,
                          .head_dim_v = 32};

TEST_P(Decoding, MatchesReferenceAndEqualsAttentionBitForBit) {
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt8, DType::kFloat8E4M3}) {
    for (const int64_t q_len : {1, 5, 150}) {
      const AttentionCase c = MakeCase(kSizes, 1);
      KvCacheOptions o = OptionsFor(kSizes);
      o.dtype = dtype;
      KvCache cache(o);
      AppendSlice(cache, c, 0, 150);
      const Buffer<float> q = Slice(c.q, 150 - q_len, 150);
      const Results r = RunDecode(cache, q);
      const AttentionCase held = Held(cache, q);
      ExpectSameBits(r, RunAttention(held));
      ExpectResultsMatch(held, r, RunOracle(held));
    }
  }
}

TEST_P(Decoding, TokenByTokenEqualsPrefill) {
  const AttentionCase c = MakeCase({.batch = 1,
                                    .num_heads = 4,
                                    .num_kv_heads = 2,
                                    .q_len = 1100,
                                    .kv_len = 1100,
                                    .head_dim = 16,
                                    .head_dim_v = 32},
                                   2);
  AttentionCase causal = c;
  causal.scalars.causal = true;
  const Values expected = RunOracle(causal);
  Results steps = RunAttention(causal);
  KvCache cache(OptionsFor(c.sizes));
  for (int64_t i = 0; i < 1100; ++i) {
    AppendSlice(cache, c, i, i + 1);
    const Results r = RunDecode(cache, Slice(c.q, i, i + 1));
    for (int64_t h = 0; h < 4; ++h) {
      if (i < 1024) {
        EXPECT_EQ(r.lse(0, h, 0, 0), steps.lse(0, h, i, 0)) << i;
      }
      steps.lse(0, h, i, 0) = r.lse(0, h, 0, 0);
      for (int64_t d = 0; d < 32; ++d) {
        if (i < 1024) {
          EXPECT_EQ(r.output(0, h, 0, d), steps.output(0, h, i, d)) << i;
        }
        steps.output(0, h, i, d) = r.output(0, h, 0, d);
      }
    }
  }
  ExpectResultsMatch(causal, steps, expected);
}

TEST_P(Decoding, PagedEqualsContiguousBitForBit) {
  const AttentionCase c = MakeCase({.batch = 2,
                                    .num_heads = 4,
                                    .num_kv_heads = 2,
                                    .q_len = 2100,
                                    .kv_len = 2100,
                                    .head_dim = 24,
                                    .head_dim_v = 32},
                                   3);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt8}) {
    KvCacheOptions o = OptionsFor(c.sizes);
    o.dtype = dtype;
    o.capacity = 2200;
    o.block_size = 0;
    KvCache contiguous(o);
    AppendSlice(contiguous, c, 0, 2100);
    for (const int64_t block_size : {1, 16, 100, 256}) {
      o.block_size = block_size;
      KvCache paged(o);
      // Other appends, so that blocks come from other places.
      AppendSlice(paged, c, 0, 10);
      AppendSlice(paged, c, 10, 2100);
      for (const int64_t q_len : {1, 3, 40}) {
        const Buffer<float> q = Slice(c.q, 2100 - q_len, 2100);
        ExpectSameBits(RunDecode(contiguous, q), RunDecode(paged, q));
      }
    }
  }
}

TEST_P(Decoding, RaggedSequencesAreIndependent) {
  const AttentionCase c = MakeCase(kSizes, 4);
  KvCache cache(OptionsFor(kSizes));
  cache.Append(c.k.view(), c.v.view(), std::vector<int32_t>{20, 150});
  const std::vector<int32_t> query_lengths = {3, 1};
  DecodeOptions options;
  options.query_lengths = query_lengths;
  const Buffer<float> q = Slice(c.q, 0, 3);
  const Results r = RunDecode(cache, q, options);
  for (const int64_t b : {0, 1}) {
    KvCache alone = cache.Fork(std::vector<int64_t>{b});
    const int64_t count = query_lengths[static_cast<size_t>(b)];
    Buffer<float> own({1, 4, count, 40}, Layout::kDense, 0.0f);
    own.ForEach([&](int64_t, int64_t h, int64_t i, int64_t d, float& x) { x = q(b, h, i, d); });
    const Results expected = RunDecode(alone, own);
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t i = 0; i < 3; ++i) {
        const bool padding = i >= count;
        EXPECT_EQ(r.lse(b, h, i, 0), padding ? -INFINITY : expected.lse(0, h, i, 0));
        EXPECT_EQ(r.output(b, h, i, 5), padding ? 0.0f : expected.output(0, h, i, 5));
      }
    }
  }
}

TEST_P(Decoding, EmptySequenceGivesEmptyRows) {
  const AttentionCase c = MakeCase(kSizes, 5);
  KvCache cache(OptionsFor(kSizes));
  cache.Append(c.k.view(), c.v.view(), std::vector<int32_t>{0, 9});
  const std::vector<int32_t> query_lengths = {0, 1};
  DecodeOptions options;
  options.query_lengths = query_lengths;
  const Results r = RunDecode(cache, Slice(c.q, 0, 1), options);
  EXPECT_EQ(r.output(0, 2, 0, 3), 0.0f);
  EXPECT_EQ(r.lse(0, 2, 0, 0), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isfinite(r.lse(1, 2, 0, 0)));
}

TEST_P(Decoding, WindowAndSinksEqualAMask) {
  for (const int64_t sinks : {0, 3}) {
    for (const int64_t window : {1, 20, 64}) {
      for (const int64_t chunk : {1, 7, 60}) {
        const AttentionCase c = MakeCase(kSizes, 6);
        KvCacheOptions o = OptionsFor(kSizes);
        o.recent_tokens = window;
        o.sink_tokens = sinks;
        KvCache cache(o);
        for (int64_t i = 0; i < 150; i += chunk) {
          const int64_t end = std::min<int64_t>(150, i + chunk);
          AppendSlice(cache, c, i, end);
          if (chunk == 1 && i % 10 != 9) continue;
          const Buffer<float> q = Slice(c.q, i, end);
          AttentionCase held = Held(cache, q);
          held.alibi_slopes = {0.5f, 0.1f, 0.02f, 0.0f};
          DecodeOptions options;
          options.alibi_slopes = held.alibi_slopes;
          const Results r = RunDecode(cache, q, options);
          ExpectResultsMatch(held, r, RunOracle(held));
        }
      }
    }
  }
}

TEST_P(Decoding, LongStreamWithSinksReadsOnlyWhatItSees) {
  Sizes sizes = kSizes;
  sizes.batch = 1;
  sizes.q_len = sizes.kv_len = 5000;
  const AttentionCase c = MakeCase(sizes, 7);
  KvCacheOptions o = OptionsFor(sizes);
  o.block_size = 16;
  o.recent_tokens = 1200;
  o.sink_tokens = 4;
  KvCache cache(o);
  for (int64_t i = 0; i < 5000; i += 100) AppendSlice(cache, c, i, i + 100);
  for (const int64_t q_len : {1, 90}) {
    const Buffer<float> q = Slice(c.q, 5000 - q_len, 5000);
    const AttentionCase held = Held(cache, q);
    ExpectResultsMatch(held, RunDecode(cache, q), RunOracle(held));
  }
}

TEST_P(Decoding, ForksOfAPrefixEqualCachesOfTheirOwn) {
  Sizes sizes = kSizes;
  sizes.batch = 1;
  sizes.q_len = sizes.kv_len = 2200;
  const AttentionCase prefix = MakeCase(sizes, 8);
  sizes.batch = 3;
  const AttentionCase tails = MakeCase(sizes, 9);
  KvCache one(OptionsFor(prefix.sizes));
  AppendSlice(one, prefix, 0, 2150);
  KvCache shared = one.Fork(std::vector<int64_t>{0, 0, 0});
  AppendSlice(shared, tails, 0, 30);
  KvCache own(OptionsFor(sizes));
  Buffer<float> k({3, 2, 2150, 40}, Layout::kDense, 0.0f),
      v({3, 2, 2150, 32}, Layout::kDense, 0.0f);
  k.ForEach([&](int64_t, int64_t h, int64_t i, int64_t d, float& x) { x = prefix.k(0, h, i, d); });
  v.ForEach([&](int64_t, int64_t h, int64_t i, int64_t d, float& x) { x = prefix.v(0, h, i, d); });
  own.Append(k.view(), v.view());
  AppendSlice(own, tails, 0, 30);
  EXPECT_LT(shared.memory().bytes, own.memory().bytes / 2);
  for (const int threads : {1, 3}) {
    const auto pool = MakeThreadPool(threads);
    const Buffer<float> q = Slice(tails.q, 28, 30);
    Results a = RunDecode(own, q);
    Results b = RunDecode(shared, q);
    Decode(q.view(), shared, {}, {.output = b.output.view(), .lse = b.lse.view()}, pool.get());
    ExpectSameBits(a, b);
  }
}

TEST_P(Decoding, RewoundAndHiddenTokensDoNotMatter) {
  AttentionCase c = MakeCase(kSizes, 10);
  KvCache clean(OptionsFor(kSizes)), dirty(OptionsFor(kSizes));
  AppendSlice(clean, c, 0, 50);
  AppendSlice(dirty, c, 0, 50);
  AttentionCase poison = c;
  poison.k.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = NAN; });
  poison.v.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = INFINITY; });
  AppendSlice(dirty, poison, 0, 30);
  for (const int64_t b : {0, 1}) dirty.Rewind(b, 50);
  const Buffer<float> q = Slice(c.q, 49, 50);
  ExpectSameBits(RunDecode(clean, q), RunDecode(dirty, q));
  // Later tokens are hidden from earlier queries.
  AppendSlice(dirty, poison, 0, 3);
  const Buffer<float> four = Slice(c.q, 49, 53);
  const Results r = RunDecode(dirty, four);
  EXPECT_EQ(r.output(0, 1, 0, 3), RunDecode(clean, q).output(0, 1, 0, 3));
  EXPECT_TRUE(std::isnan(r.output(0, 1, 1, 3)));
}

TEST_P(Decoding, ThreadsChangeNoBit) {
  const AttentionCase c = MakeCase(kSizes, 11);
  KvCacheOptions o = OptionsFor(kSizes);
  o.recent_tokens = 60;
  o.sink_tokens = 2;
  KvCache cache(o);
  AppendSlice(cache, c, 0, 150);
  const auto one = MakeThreadPool(1), many = MakeThreadPool(4);
  Results a = RunDecode(cache, c.q), b = a;
  Decode(c.q.view(), cache, {}, {.output = a.output.view()}, one.get());
  Decode(c.q.view(), cache, {}, {.output = b.output.view()}, many.get());
  ExpectSameBits(a, b);
}

TEST_P(Decoding, KnownNumbers) {
  // Two equal keys: the mean of two values; then the third value alone in a window of one.
  KvCache cache({.head_dim = 1, .block_size = 1});
  const float k[] = {1, 1}, v[] = {3, 5};
  cache.Append(Contiguous(k, 1, 1, 2, 1), Contiguous(v, 1, 1, 2, 1));
  Buffer<float> q({1, 1, 1, 1}, Layout::kDense, 2.0f);
  const Results r = RunDecode(cache, q);
  EXPECT_FLOAT_EQ(r.output(0, 0, 0, 0), 4.0f);
  EXPECT_FLOAT_EQ(r.lse(0, 0, 0, 0), 2.0f + std::log(2.0f));
  const float zero[] = {0};
  DecodeOptions options;
  options.sinks = zero;
  options.scale = 0.0;
  EXPECT_FLOAT_EQ(RunDecode(cache, q, options).output(0, 0, 0, 0), 8.0f / 3);
}

TEST(DecodingErrors, NameTheArgument) {
  KvCache cache(
      {.batch = 2, .num_kv_heads = 2, .head_dim = 3, .block_size = 2, .recent_tokens = 4});
  std::vector<float> x(1000);
  cache.Append(Contiguous<const float>(x.data(), 2, 2, 10, 3),
               Contiguous<const float>(x.data(), 2, 2, 10, 3));
  cache.Append(Contiguous<const float>(x.data(), 2, 2, 1, 3),
               Contiguous<const float>(x.data(), 2, 2, 1, 3));
  std::vector<float> out(1000);
  const auto message = [&](int64_t batch, int64_t heads, int64_t q_len, int64_t dim,
                           std::vector<int32_t> counts = {}) -> std::string {
    DecodeOptions options;
    options.query_lengths = counts;
    try {
      Decode(Contiguous<const float>(x.data(), batch, heads, q_len, dim), cache, options,
             {.output = Contiguous(out.data(), batch, heads, q_len, 3)});
    } catch (const Error& error) {
      return std::string(ErrorCodeName(error.code())) + ": " + error.what();
    }
    return "no error";
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(message(2, 4, 1, 3), "no error");
  EXPECT_THAT(message(1, 4, 1, 3), HasSubstr("shape: q has shape [1, 4"));
  EXPECT_THAT(message(2, 3, 1, 3), HasSubstr("multiple"));
  EXPECT_THAT(message(2, 4, 1, 5), HasSubstr("shape: q has shape [2, 4, 1, 5]"));
  EXPECT_THAT(message(2, 4, 12, 3), HasSubstr("range: sequence 0 has 11 tokens and 12 queries"));
  EXPECT_THAT(message(2, 4, 9, 3), HasSubstr("was evicted"));
  EXPECT_THAT(message(2, 4, 1, 3, {1}), HasSubstr("shape: query_lengths has 1 values"));
  EXPECT_THAT(message(2, 4, 1, 3, {1, 2}), HasSubstr("range: query_lengths holds 2"));
}

}  // namespace
}  // namespace heed::testing
