// What the kernels are given by which queries choose keys: scores of blocks or keys in float64, and
// what is chosen. Plain numbers and device pointers.
#ifndef HEED_SRC_CUDA_CHOICE_PARAMS_H_
#define HEED_SRC_CUDA_CHOICE_PARAMS_H_

#include <cstdint>

#include "src/cuda/kept_rows.h"
#include "src/cuda/recurrent_params.h"

namespace heed::cuda {

// Where queries stand and how many keys exist, as the host knows it.
struct TokenRules {
  const int32_t* lengths;  // [batch] or [batch, len]
  bool lengths_per_query;
  const int64_t* positions;  // [batch], of query 0

  HEED_DEVICE int32_t Length(int b, int i, int32_t len) const {
    return lengths[lengths_per_query ? int64_t{b} * len + i : int64_t{b}];
  }
  HEED_DEVICE int64_t Position(int b, int i) const { return positions[b] + i; }
};

// [largest; smallest] keys of pages, dimension by dimension; NaN where one of them is.
struct BoundsParams {
  FloatRows<const float> keys;  // [batch, heads, kv_len, width]
  FloatRows<float> bounds;      // [batch, heads, pages, 2 width]
  const int32_t* lengths;       // [batch]
  int32_t batch, heads, pages, width, page_size;
};

// Weighted sums, or means, of `block` tokens every `stride`; zeros where the tokens do not exist.
struct CompressParams {
  FloatRows<const float> tokens;  // [batch, heads, len, width]
  DevicePairs<float> weights;     // [1, 1, heads, block], or absent: means
  FloatRows<float> out;           // [batch, heads, count, width]
  const int32_t* lengths;         // [batch]
  int32_t batch, heads, count, width, block, stride;
};

// Products of queries with vectors that stand for blocks.
struct DotScoreParams {
  FloatRows<const float> queries;  // [batch, heads, len, width]
  FloatRows<const float> vectors;  // [batch, heads / group, count, width]
  double* scores;                  // [batch, heads, len, count]
  int32_t batch, heads, group, len, count, width;
};

// Sums over the heads of an indexer of weight * relu(product).
struct IndexScoreParams {
  FloatRows<const float> queries, weights;  // [batch, index_heads, len, width], [..., 1]
  FloatRows<const float> keys;              // [batch, 1, count, width]
  double* scores;                           // [batch, len, count]
  int32_t batch, index_heads, len, count, width;
};

// How much weight compressed keys give to the tokens of blocks, summed over the heads of a group.
struct CompressedScoreParams {
  FloatRows<const float> queries;  // [batch, heads * group, len, width]
  FloatRows<const float> keys;     // [batch, heads, compressed, width]
  const int32_t* visible;          // [batch, ...]: compressed keys that a query sees
  int64_t visible_stride;          // from one batch entry to the next
  double* products;                // [batch, heads, len, compressed]: scratch
  double* scores;                  // [batch, heads, len, count]
  float scale;
  int32_t batch, heads, group, len, compressed, count, width;
  int32_t compress_block, compress_stride, key_block;
};

// Every query keeps its `most` best candidates, blocks of kv_block keys; of equal scores the lower.
// Certain ones come first: the first blocks, and the last ones up to the block of its position.
// These are queries [first, first + rows).
struct ChooseParams {
  const double* scores;  // [batch, lists, rows, count]
  KeptRows kept;
  TokenRules rules;
  bool causal;
  int64_t first_blocks, local_blocks;
  int32_t batch, first, rows, kv_len, kv_block, count, most;
};

// Blocks of the kernels: a row each.
inline int64_t NumBlocks(const BoundsParams& p) { return int64_t{p.batch} * p.heads * p.pages; }
inline int64_t NumBlocks(const CompressParams& p) { return int64_t{p.batch} * p.heads * p.count; }
inline int64_t NumBlocks(const DotScoreParams& p) { return int64_t{p.batch} * p.heads * p.len; }
inline int64_t NumBlocks(const IndexScoreParams& p) { return int64_t{p.batch} * p.len; }
inline int64_t NumBlocks(const CompressedScoreParams& p) {
  return int64_t{p.batch} * p.heads * p.len;
}
inline int64_t NumBlocks(const ChooseParams& p) { return int64_t{p.batch} * p.kept.lists * p.rows; }

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_CHOICE_PARAMS_H_
