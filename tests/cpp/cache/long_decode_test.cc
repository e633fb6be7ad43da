// Decoding over caches so long that keys are read row by row: every type agrees with the reference,
// and int8 in fixed point does where numbers are far apart, none at all or not finite. And over
// ones so short that a query alone has the bits of many.
#include <cmath>
#include <functional>
#include <limits>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "cache/cache_case.h"
#include "gtest/gtest.h"
#include "heed/cache.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class LongDecoding : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(LongDecoding);

// Neither the keys nor the last tile are a multiple of what passes at once.
constexpr int64_t kKeys = 1363;

AttentionCase LongCase(int64_t group, int64_t head_dim, int64_t head_dim_v) {
  return MakeCase({.batch = 1,
                   .num_heads = 2 * group,
                   .num_kv_heads = 2,
                   .q_len = kKeys,
                   .kv_len = kKeys,
                   .head_dim = head_dim,
                   .head_dim_v = head_dim_v},
                  static_cast<uint64_t>(head_dim + group));
}

KvCache Filled(const AttentionCase& c, DType dtype) {
  KvCacheOptions o = OptionsFor(c.sizes);
  o.dtype = dtype;
  o.block_size = 64;
  KvCache cache(o);
  AppendSlice(cache, c, 0, kKeys);
  return cache;
}

void ExpectMatch(const KvCache& cache, const Buffer<float>& q) {
  const AttentionCase held = Held(cache, q);
  ExpectResultsMatch(held, RunDecode(cache, q), RunOracle(held));
}

TEST_P(LongDecoding, MatchesReferenceInEveryType) {
  for (const DType dtype :
       {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt8, DType::kFloat8E4M3}) {
    for (const int64_t group : {1, 3, 4, 7}) {
      const AttentionCase c = LongCase(group, 64, 128);
      const KvCache cache = Filled(c, dtype);
      ExpectMatch(cache, Slice(c.q, kKeys - 1, kKeys));
    }
  }
}

TEST_P(LongDecoding, BytesOfAnyWidthAndSeveralQueries) {
  const Extents widths[] = {{128, 64}, {96, 64}, {64, 40}, {256, 320}, {320, 256}};
  for (const Extents& w : widths) {
    const AttentionCase c = LongCase(2, w[0], w[1]);
    const KvCache cache = Filled(c, DType::kInt8);
    for (const int64_t q_len : {1, 3}) ExpectMatch(cache, Slice(c.q, kKeys - q_len, kKeys));
  }
}

// Two numbers of bfloat16 come from one load where vectors come in pairs, else one.
TEST_P(LongDecoding, BFloat16OfAnyWidthAndSeveralQueries) {
  const Extents widths[] = {{128, 96}, {48, 160}, {8, 8}, {72, 40}, {256, 320}, {320, 256}};
  for (const Extents& w : widths) {
    const AttentionCase c = LongCase(2, w[0], w[1]);
    const KvCache cache = Filled(c, DType::kBFloat16);
    for (const int64_t q_len : {1, 3}) ExpectMatch(cache, Slice(c.q, kKeys - q_len, kKeys));
  }
}

TEST_P(LongDecoding, SameBitsForAnyNumberOfThreads) {
  const AttentionCase c = LongCase(4, 64, 64);
  const Buffer<float> q = Slice(c.q, kKeys - 1, kKeys);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt8}) {
    const KvCache cache = Filled(c, dtype);
    const Results expected = RunDecode(cache, q);
    for (const int threads : {1, 2, 5}) {
      const auto pool = MakeThreadPool(threads);
      Buffer<float> output({1, 8, 1, 64}, Layout::kDense, NAN);
      Decode(q.view(), cache, {}, {.output = output.view()}, pool.get());
      output.ForEach([&](int64_t, int64_t h, int64_t, int64_t d, float& x) {
        EXPECT_EQ(x, expected.output(0, h, 0, d)) << DTypeName(dtype);
      });
    }
  }
}

// Values that are summed where they lie have the bits of packed ones.
TEST_P(LongDecoding, LastQueryAloneHasTheBitsOfManyBeforeKeysAreSplit) {
  constexpr int64_t kShort = 1000, kMany = 40;
  const AttentionCase c = MakeCase({.batch = 1,
                                    .num_heads = 4,
                                    .num_kv_heads = 2,
                                    .q_len = kShort,
                                    .kv_len = kShort,
                                    .head_dim = 64,
                                    .head_dim_v = 192},
                                   9);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    KvCacheOptions o = OptionsFor(c.sizes);
    o.dtype = dtype;
    KvCache cache(o);
    AppendSlice(cache, c, 0, kShort);
    const Results alone = RunDecode(cache, Slice(c.q, kShort - 1, kShort));
    const Results many = RunDecode(cache, Slice(c.q, kShort - kMany, kShort));
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t d = 0; d < 192; ++d) {
        EXPECT_EQ(alone.output(0, h, 0, d), many.output(0, h, kMany - 1, d)) << DTypeName(dtype);
      }
    }
  }
}

// KV head 0 has query heads 0 and 1, which share their tiles.
using Change = std::function<void(AttentionCase&)>;

TEST_P(LongDecoding, BytesOfNumbersFarApart) {
  const auto scale_query = [](int64_t head, float factor) -> Change {
    return [=](AttentionCase& c) {
      c.q.ForEach([&](int64_t, int64_t h, int64_t, int64_t, float& x) {
        if (h == head) x *= factor;
      });
    };
  };
  const Change changes[] = {
      scale_query(1, 0.0f),
      scale_query(1, 0x1p-110f),
      [](AttentionCase& c) {
        c.q.ForEach([](int64_t, int64_t, int64_t, int64_t d, float& x) { x *= d == 5 ? 30 : 1; });
      },
      [](AttentionCase& c) {
        c.v.ForEach([](int64_t, int64_t, int64_t j, int64_t, float& x) {
          x *= std::pow(10.0f, static_cast<float>(j % 9) - 4);
        });
      },
      // Products of units beyond float32, sums of 0.
      [](AttentionCase& c) {
        c.q.ForEach([](int64_t, int64_t, int64_t, int64_t d, float& x) { x = d == 5 ? 1e12f : 0; });
        c.k.ForEach([](int64_t, int64_t, int64_t, int64_t d, float& x) { x = d == 6 ? 1e38f : 0; });
      },
  };
  for (const Change& change : changes) {
    AttentionCase c = LongCase(2, 64, 64);
    change(c);
    ExpectMatch(Filled(c, DType::kInt8), Slice(c.q, kKeys - 1, kKeys));
  }
}

TEST_P(LongDecoding, PoisonStaysWhereItIsSeen) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Change changes[] = {
      [](AttentionCase& c) { c.q(0, 1, kKeys - 1, 7) = kNan; },
      [](AttentionCase& c) { c.q(0, 1, kKeys - 1, 7) = std::numeric_limits<float>::infinity(); },
      [](AttentionCase& c) { c.k(0, 0, 300, 7) = kNan; },
      [](AttentionCase& c) { c.v(0, 0, 300, 7) = kNan; },
      // The last of three queries alone sees these.
      [](AttentionCase& c) { c.k(0, 0, kKeys - 1, 7) = kNan; },
      [](AttentionCase& c) { c.v(0, 0, kKeys - 1, 7) = kNan; },
  };
  for (const Change& change : changes) {
    AttentionCase c = LongCase(2, 64, 64);
    change(c);
    for (const DType dtype : {DType::kBFloat16, DType::kInt8}) {
      const KvCache cache = Filled(c, dtype);
      const Buffer<float> q = Slice(c.q, kKeys - 3, kKeys);
      ExpectMatch(cache, q);
      const Results r = RunDecode(cache, q);
      EXPECT_TRUE(std::isfinite(r.output(0, 2, 2, 0)));
    }
  }
}

}  // namespace
}  // namespace heed::testing
