// What the kernels of soft sorting (Sinkhorn attention) are given: plain numbers and device
// pointers.
#ifndef HEED_SRC_CUDA_SORT_PARAMS_H_
#define HEED_SRC_CUDA_SORT_PARAMS_H_

#include <cstdint>

#include "src/cuda/kept_rows.h"
#include "src/cuda/recurrent_params.h"

namespace heed::cuda {

// What all three know: blocks of `size` tokens, and which may come to which place.
struct SortRules {
  const int32_t* lengths;  // [batch]
  double* logs;            // [batch, heads, blocks, blocks]: logarithms of the balanced matrices
  bool causal;
  int32_t batch, heads, group, blocks, size;

  // Blocks of queries that hold tokens.
  HEED_DEVICE int Rows(int b) const {
    return static_cast<int>((int64_t{lengths[b]} + size - 1) / size);
  }
  // Blocks of keys that may be sorted to the place of block n: whole ones, and past ones if causal.
  HEED_DEVICE int Cols(int b, int n) const {
    const int whole = lengths[b] / size;
    return causal && n < whole ? n : whole;
  }
  HEED_DEVICE double* Log(int b, int h, int n) const {
    return logs + ((int64_t{b} * heads + h) * blocks + n) * blocks;
  }
};

struct BalanceParams {
  SortRules rules;
  FloatRows<const float> q, k;  // [batch, heads, len, width], [batch, heads / group, len, width]
  DevicePairs<float> logits;    // [batch, heads, blocks, blocks], or absent: products of means
  double* means;                // [batch, heads, 2, blocks, width]: queries, keys; scratch
  double scale, temperature;
  int64_t iterations;
  int32_t width;
};

// Rows [sorted; own] of every block, [batch, heads * blocks, 2 size, width].
struct SortRowParams {
  SortRules rules;
  FloatRows<const float> tokens;  // [batch, heads / group, len, width]
  FloatRows<float> out;
  int32_t width;
};

// What the rows of a block see of these, [batch, heads * blocks, size, 2 size].
struct SortKeepParams {
  SortRules rules;
  KeptRows kept;
};

// Blocks of the kernels: a head; a row.
inline int64_t NumBlocks(const BalanceParams& p) { return int64_t{p.rules.batch} * p.rules.heads; }
inline int64_t NumBlocks(const SortRowParams& p) {
  return int64_t{p.rules.batch} * p.rules.heads * p.rules.blocks * 2 * p.rules.size;
}
inline int64_t NumBlocks(const SortKeepParams& p) {
  return int64_t{p.rules.batch} * p.rules.heads * p.rules.blocks * p.rules.size;
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_SORT_PARAMS_H_
