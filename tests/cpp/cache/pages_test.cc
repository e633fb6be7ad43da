// Pages of a cache: what queries choose does not depend on how the tokens got there.
#include <cmath>
#include <vector>

#include "buffer.h"
#include "gtest/gtest.h"
#include "heed/cache.h"
#include "heed/cache_policy.h"
#include "random.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class Pages : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Pages);

constexpr int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kLen = 150, kDim = 24, kDimV = 9;

Buffer<float> Draw(int64_t heads, int64_t len, int64_t dim, uint64_t seed) {
  Random random(seed);
  Buffer<float> to({kBatch, heads, len, dim}, Layout::kDense, 0.0f);
  to.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x = random.Normal(); });
  return to;
}

Buffer<float> Slice(const Buffer<float>& from, int64_t begin, int64_t end) {
  Extents shape = from.shape();
  shape[2] = end - begin;
  Buffer<float> to(shape, Layout::kDense, 0.0f);
  to.ForEach(
      [&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) { x = from(b, h, begin + i, d); });
  return to;
}

struct Drawn {
  Buffer<float> q = Draw(kHeads, kLen, kDim, 1), k = Draw(kKvHeads, kLen, kDim, 2),
                v = Draw(kKvHeads, kLen, kDimV, 3);

  void Append(KvCache& cache, int64_t begin, int64_t end) const {
    cache.Append(Slice(k, begin, end).view(), Slice(v, begin, end).view());
  }
};

KvCache MakeCache(int64_t page_size, int64_t block_size = 0, DType dtype = DType::kFloat32) {
  return KvCache({.batch = kBatch,
                  .num_kv_heads = kKvHeads,
                  .head_dim = kDim,
                  .head_dim_v = kDimV,
                  .block_size = block_size,
                  .dtype = dtype,
                  .page_size = page_size});
}

std::vector<float> RunDecode(const KvCache& cache, const Buffer<float>& q,
                             const DecodeOptions& options) {
  Buffer<float> output({kBatch, kHeads, q.shape()[2], kDimV}, Layout::kDense, NAN);
  Decode(q.view(), cache, options, {.output = output.view()});
  return output.Elements();
}

DecodeOptions OfPages(int64_t pages) {
  DecodeOptions options;
  options.top_pages = pages;
  return options;
}

// QuestAttention() of the last queries over keys and values.
std::vector<float> Expected(const Buffer<float>& q, const Buffer<float>& k, const Buffer<float>& v,
                            int64_t page_size, int64_t pages) {
  QuestOptions options;
  options.attention.query_offset = QueryOffset::End();
  options.page_size = page_size;
  options.top_pages = pages;
  Buffer<float> output({kBatch, kHeads, q.shape()[2], kDimV}, Layout::kDense, NAN);
  QuestAttention(q.view(), k.view(), v.view(), options, {.output = output.view()});
  return output.Elements();
}

// The same choices, or the difference is of order 1.
void ExpectSame(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t n = 0; n < actual.size(); ++n) EXPECT_NEAR(actual[n], expected[n], 1e-5) << n;
}

TEST_P(Pages, EveryTokenSeesWhatQuestAttentionSees) {
  const Drawn drawn;
  for (const int64_t block_size : {5, 10, 0}) {
    KvCache cache = MakeCache(5, block_size);
    for (int64_t t = 0; t < kLen; ++t) {
      drawn.Append(cache, t, t + 1);
      if (t % 13 != 0 && t + 1 != kLen) continue;
      const Buffer<float> q = Slice(drawn.q, t, t + 1);
      ExpectSame(RunDecode(cache, q, OfPages(3)),
                 Expected(q, Slice(drawn.k, 0, t + 1), Slice(drawn.v, 0, t + 1), 5, 3));
    }
  }
}

TEST_P(Pages, AllQueriesAtOnceSeeWhatQuestAttentionSees) {
  const Drawn drawn;
  KvCache cache = MakeCache(7);
  drawn.Append(cache, 0, 61);
  drawn.Append(cache, 61, kLen);
  for (const int64_t pages : {1, 2, 5}) {
    ExpectSame(RunDecode(cache, drawn.q, OfPages(pages)),
               Expected(drawn.q, drawn.k, drawn.v, 7, pages));
  }
}

TEST_P(Pages, HeadsWithoutAGroupSeeWhatQuestAttentionSees) {
  const Drawn drawn;
  KvCache cache = MakeCache(3);
  drawn.Append(cache, 0, kLen);
  const Buffer<float> q = Draw(kKvHeads, 2, kDim, 7);
  QuestOptions options;
  options.attention.query_offset = QueryOffset::End();
  options.page_size = 3;
  options.top_pages = 4;
  Buffer<float> expected({kBatch, kKvHeads, 2, kDimV}, Layout::kDense, NAN), actual = expected;
  QuestAttention(q.view(), drawn.k.view(), drawn.v.view(), options, {.output = expected.view()});
  Decode(q.view(), cache, OfPages(4), {.output = actual.view()});
  ExpectSame(actual.Elements(), expected.Elements());
}

TEST_P(Pages, AllPagesAreThePlainDecode) {
  const Drawn drawn;
  KvCache cache = MakeCache(7);
  drawn.Append(cache, 0, kLen);
  ExpectSame(RunDecode(cache, drawn.q, OfPages(22)), RunDecode(cache, drawn.q, {}));
  const Buffer<float> last = Slice(drawn.q, kLen - 1, kLen);
  ExpectSame(RunDecode(cache, last, OfPages(1000)), RunDecode(cache, last, {}));
}

TEST_P(Pages, RewoundAndForkedCachesChooseByWhatTheyHold) {
  const Drawn drawn;
  KvCache cache = MakeCache(5, 20);
  drawn.Append(cache, 0, 83);
  KvCache fork = cache.Fork();
  // Other tokens from 67 on, which is inside of a page.
  Drawn other;
  for (Buffer<float>* rows : {&other.k, &other.v}) {
    rows->ForEach([](int64_t, int64_t, int64_t i, int64_t, float& x) { x = i < 67 ? x : -3 * x; });
  }
  cache.Rewind(0, 67);
  cache.Rewind(1, 67);
  other.Append(cache, 67, kLen);
  drawn.Append(fork, 83, kLen);
  const Buffer<float> q = Slice(drawn.q, kLen - 4, kLen);
  ExpectSame(RunDecode(cache, q, OfPages(3)), Expected(q, other.k, other.v, 5, 3));
  ExpectSame(RunDecode(fork, q, OfPages(3)), Expected(q, drawn.k, drawn.v, 5, 3));
}

TEST_P(Pages, BoundsAreThoseOfStoredNumbers) {
  const Drawn drawn;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kInt8, DType::kFloat8E4M3}) {
    KvCache cache = MakeCache(5, 0, dtype);
    drawn.Append(cache, 0, kLen);
    Drawn held;
    for (int64_t b = 0; b < kBatch; ++b) {
      const auto entry = [b](Buffer<float>& rows) {
        TensorView<float> view = rows.view();
        view.data += b * view.strides[0];
        view.shape[0] = 1;
        return view;
      };
      cache.Read(b, 0, kLen, entry(held.k), entry(held.v));
    }
    const Buffer<float> q = Slice(drawn.q, kLen - 4, kLen);
    ExpectSame(RunDecode(cache, q, OfPages(3)), Expected(q, held.k, held.v, 5, 3));
  }
}

TEST_P(Pages, RaggedSequencesChooseAmongTheirOwn) {
  const Drawn drawn;
  KvCache cache = MakeCache(5);
  const std::vector<int32_t> lengths = {kLen, 48}, queries = {3, 1};
  cache.Append(drawn.k.view(), drawn.v.view(), lengths);
  DecodeOptions options = OfPages(2);
  options.query_lengths = queries;
  Buffer<float> q = Slice(drawn.q, kLen - 3, kLen);
  q.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
    if (b == 1 && i == 0) x = drawn.q(1, h, 47, d);
  });
  const std::vector<float> actual = RunDecode(cache, q, options);
  const std::vector<float> first = Expected(q, drawn.k, drawn.v, 5, 2);
  const Buffer<float> one = Slice(q, 0, 1);
  const std::vector<float> second =
      Expected(one, Slice(drawn.k, 0, 48), Slice(drawn.v, 0, 48), 5, 2);
  for (size_t n = 0; n < actual.size(); ++n) {
    const size_t entry = n / (kHeads * 3 * kDimV), head = n / (3 * kDimV) % kHeads;
    const size_t i = n / kDimV % 3, d = n % kDimV;
    const float expected = entry == 0 ? first[n]
                           : i == 0   ? second[((kHeads + head) * kDimV) + d]
                                      : 0.0f;
    EXPECT_NEAR(actual[n], expected, 1e-5) << n;
  }
}

TEST(PagesMemory, BoundsAreCounted) {
  const Drawn drawn;
  KvCache plain = MakeCache(0, 20), paged = MakeCache(5, 20);
  drawn.Append(plain, 0, kLen);
  drawn.Append(paged, 0, kLen);
  const int64_t blocks = paged.memory().blocks;
  EXPECT_EQ(blocks, plain.memory().blocks);
  const int64_t bounds = blocks * kKvHeads * 4 * 2 * kDim * 4;
  EXPECT_GE(paged.memory().bytes, plain.memory().bytes + bounds);
  EXPECT_LE(paged.memory().bytes, plain.memory().bytes + bounds + 64 * blocks);
}

TEST(PagesRefuse, WhatMakesNoSense) {
  EXPECT_THROW(MakeCache(5, 12), Error);  // blocks of no whole number of pages
  EXPECT_THROW(MakeCache(-1), Error);
  EXPECT_THROW(KvCache({.head_dim = 4, .recent_tokens = 10, .page_size = 5}), Error);
  const Drawn drawn;
  KvCache plain = MakeCache(0), paged = MakeCache(5);
  drawn.Append(plain, 0, kLen);
  drawn.Append(paged, 0, kLen);
  EXPECT_THROW(RunDecode(plain, drawn.q, OfPages(3)), Error);
  EXPECT_THROW(RunDecode(paged, drawn.q, OfPages(0)), Error);
}

}  // namespace
}  // namespace heed::testing
