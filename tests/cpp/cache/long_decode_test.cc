// Decoding over caches so long that keys are read row by row: every type agrees with the reference,
// and int8 in fixed point does where numbers are far apart or are none.
#include <cmath>
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

}  // namespace
}  // namespace heed::testing
