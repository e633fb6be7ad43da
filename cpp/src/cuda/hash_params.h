// What the kernels of hashing (Reformer) are given: plain numbers and device pointers.
#ifndef HEED_SRC_CUDA_HASH_PARAMS_H_
#define HEED_SRC_CUDA_HASH_PARAMS_H_

#include <cstdint>

#include "src/cuda/kept_rows.h"
#include "src/cuda/recurrent_params.h"

namespace heed::cuda {

// Buckets of all tokens in all rounds: argmax of [x; -x], x the products with the rotations.
struct HashParams {
  FloatRows<const float> q;                           // [batch, heads, len, width]
  DevicePairs<float> rotations;                       // [1, rounds, width, columns]
  int32_t* buckets;                                   // [rounds, batch, heads, len]
  int32_t rounds, batch, heads, len, width, columns;  // no columns: one bucket
};

// Where a token stands among those of its head, sorted by bucket, and the places that it sees.
struct HashPlaceOnDevice {
  int32_t place, begin, end;  // a place of -1: the token does not exist
};

struct HashPlaceParams {
  const int32_t* buckets;     // [rounds, batch, heads, len]
  const int32_t* lengths;     // [batch]
  HashPlaceOnDevice* places;  // [rounds, batch, heads, len]
  int32_t rounds, batch, heads, len, chunk;
};

// Pairs that some round brings together; a token sees itself when it sees nothing else.
struct HashKeepParams {
  const HashPlaceOnDevice* places;  // [rounds, batch, heads, len]
  KeptRows kept;                    // a list for each head
  bool causal;
  int32_t rounds, batch, heads, len;
};

// Blocks of the kernels: a token of each thread; a row.
inline int64_t NumHashes(int32_t rounds, int32_t batch, int32_t heads, int32_t len) {
  return (int64_t{rounds} * batch * heads * len + kBlockThreads - 1) / kBlockThreads;
}
inline int64_t NumBlocks(const HashParams& p) {
  return NumHashes(p.rounds, p.batch, p.heads, p.len);
}
inline int64_t NumBlocks(const HashPlaceParams& p) {
  return NumHashes(p.rounds, p.batch, p.heads, p.len);
}
inline int64_t NumBlocks(const HashKeepParams& p) { return int64_t{p.batch} * p.heads * p.len; }

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HASH_PARAMS_H_
