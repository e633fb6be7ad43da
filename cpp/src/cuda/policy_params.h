// What the kernels are given that say which tokens a cache would hold: the first and the last ones,
// or those that weighed most. Plain numbers and device pointers.
#ifndef HEED_SRC_CUDA_POLICY_PARAMS_H_
#define HEED_SRC_CUDA_POLICY_PARAMS_H_

#include <cstdint>

#include "src/cuda/kept_rows.h"
#include "src/cuda/recurrent_params.h"

namespace heed::cuda {

// A row keeps the last `recent` keys up to the query, and the first `sinks`.
struct StreamKeepParams {
  KeptRows kept;
  const int64_t* positions;  // [batch], of query 0
  int64_t recent, sinks;
  int32_t batch, kv_len;
};

// A row keeps what a cache of heavy hitters holds when a token is decoded: the last `recent` tokens
// and, of the older ones, the `heavy` that have received the largest weights.
struct HeavyKeepParams {
  FloatRows<const float> q;  // [batch, heads * group, len, width]
  FloatRows<const float> k;  // [batch, heads, len, width]
  const float* sinks;        // [heads * group] or nullptr
  const int32_t* lengths;    // [batch]
  KeptRows kept;
  uint8_t* held;         // [batch, heads, len]: what the cache holds; scratch
  double* sums;          // [batch, heads, len]: what tokens have received
  float* scores;         // [batch, heads, len]: scratch
  float scale, softcap;  // softcap 0: off
  int64_t recent, heavy;
  int32_t batch, heads, group, len, width;
};

// Blocks of the kernels: a row; a KV head, whose tokens come one after the other.
inline int64_t NumBlocks(const StreamKeepParams& p) { return int64_t{p.batch} * p.kept.len; }
inline int64_t NumBlocks(const HeavyKeepParams& p) { return int64_t{p.batch} * p.heads; }

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_POLICY_PARAMS_H_
