// A cache filled from an attention case, queries over it, and what it holds as a case of its own.
#ifndef HEED_TESTS_CACHE_CACHE_CASE_H_
#define HEED_TESTS_CACHE_CACHE_CASE_H_

#include <cmath>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gtest/gtest.h"
#include "heed/cache.h"

namespace heed::testing {

inline KvCacheOptions OptionsFor(const Sizes& s) {
  return {.batch = s.batch,
          .num_kv_heads = s.num_kv_heads,
          .head_dim = s.head_dim,
          .head_dim_v = s.head_dim_v,
          .block_size = 7};
}

// Rows [begin, end) along len.
inline Buffer<float> Slice(const Buffer<float>& from, int64_t begin, int64_t end) {
  Extents shape = from.shape();
  shape[2] = end - begin;
  Buffer<float> to(shape, Layout::kDense, 0.0f);
  to.ForEach(
      [&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) { x = from(b, h, begin + i, d); });
  return to;
}

inline void AppendSlice(KvCache& cache, const AttentionCase& c, int64_t begin, int64_t end) {
  cache.Append(Slice(c.k, begin, end).view(), Slice(c.v, begin, end).view());
}

inline Results RunDecode(const KvCache& cache, const Buffer<float>& q,
                         const DecodeOptions& options = {}) {
  Results r;
  const KvCacheOptions& o = cache.options();
  r.output =
      Buffer<float>({o.batch, q.shape()[1], q.shape()[2], o.head_dim_v}, Layout::kDense, NAN);
  r.lse = Buffer<float>({o.batch, q.shape()[1], q.shape()[2], 1}, Layout::kDense, NAN);
  Decode(q.view(), cache, options, {.output = r.output.view(), .lse = r.lse.view()});
  return r;
}

// What the cache holds, as an ordinary problem: the queries are the last tokens.
inline AttentionCase Held(const KvCache& cache, const Buffer<float>& q) {
  const KvCacheOptions& o = cache.options();
  const int64_t kv_len = cache.max_length();
  AttentionCase c = MakeCase({.batch = o.batch,
                              .num_heads = q.shape()[1],
                              .num_kv_heads = o.num_kv_heads,
                              .q_len = q.shape()[2],
                              .kv_len = kv_len,
                              .head_dim = o.head_dim,
                              .head_dim_v = o.head_dim_v});
  c.q = q;
  for (int64_t b = 0; b < o.batch; ++b) {
    const int64_t length = cache.length(b);
    c.key_lengths.push_back(static_cast<int32_t>(length));
    for (int64_t j = 0; j < length; ++j) {
      Buffer<float> k({1, o.num_kv_heads, 1, o.head_dim}, Layout::kDense, 0.0f);
      Buffer<float> v({1, o.num_kv_heads, 1, o.head_dim_v}, Layout::kDense, 0.0f);
      try {
        cache.Read(b, j, j + 1, k.view(), v.view());
      } catch (const Error&) {
        continue;  // evicted
      }
      for (int64_t h = 0; h < o.num_kv_heads; ++h) {
        for (int64_t d = 0; d < o.head_dim; ++d) c.k(b, h, j, d) = k(0, h, 0, d);
        for (int64_t d = 0; d < o.head_dim_v; ++d) c.v(b, h, j, d) = v(0, h, 0, d);
      }
    }
  }
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::End();
  if (o.recent_tokens > 0 && o.sink_tokens == 0) c.scalars.window = Window::LastN(o.recent_tokens);
  if (o.sink_tokens > 0) {
    c.keep = Buffer<uint8_t>({o.batch, 1, q.shape()[2], kv_len}, Layout::kDense, 0);
    c.keep.ForEach([&](int64_t b, int64_t, int64_t i, int64_t j, uint8_t& keep) {
      const int64_t position = cache.length(b) - q.shape()[2] + i;
      keep = j < o.sink_tokens || j > position - o.recent_tokens;
    });
  }
  return c;
}

inline void ExpectSameBits(const Results& a, const Results& b) {
  EXPECT_EQ(Bits(a.output), Bits(b.output));
  EXPECT_EQ(Bits(a.lse), Bits(b.lse));
}

}  // namespace heed::testing

#endif  // HEED_TESTS_CACHE_CACHE_CASE_H_
