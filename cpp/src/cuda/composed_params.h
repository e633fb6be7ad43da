// What the kernels between the attentions of a composed mechanism are given: plain numbers and
// device pointers, passed by value.
#ifndef HEED_SRC_CUDA_COMPOSED_PARAMS_H_
#define HEED_SRC_CUDA_COMPOSED_PARAMS_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/recurrent_params.h"

namespace heed::cuda {

// out = factor a b + addend_factor addend, for every batch entry and head. `out` may be the addend.
struct MultiplyParams {
  DevicePairs<float> a;       // [batch, heads, rows, inner]
  DevicePairs<float> b;       // [batch, heads, inner, cols]
  DevicePairs<float> addend;  // [batch, heads, rows, cols], or absent
  FloatRows<float> out;       // the same
  float factor, addend_factor;
  int32_t batch, heads, rows, inner, cols;
  // [batch] or nullptr: how many rows of a, and how many of its columns, exist. The others are not
  // read, and count as zeros.
  const int32_t* row_lengths;
  const int32_t* inner_lengths;
};

// Tiles of a product: a block has one, in steps of as many columns of a.
inline constexpr int kProductTile = 32;
// So many terms are summed at a time in float32. A product adds these sums up in float64, so that
// long ones round 256 times in a row too.
inline constexpr int kProductPart = 256;
HEED_DEVICE constexpr int64_t ProductTiles(int32_t extent) {
  return (int64_t{extent} + kProductTile - 1) / kProductTile;
}

// Row n of `out` is the mean of tokens [begin, end) of its KV head: blocks of `block` tokens, or,
// where that is 0, as many segments as `out` has rows. Zeros where there are none.
struct MeanParams {
  FloatRows<const float> tokens;  // [batch, heads / group, len, width]
  FloatRows<float> out;           // [batch, heads, rows, width]
  int32_t batch, heads, group, rows, width, block, len;
  const int32_t* lengths;  // [batch] or nullptr: len
};

// One number or matrix for each head, of matrices [batch, heads, size, size].
struct MatrixParams {
  FloatRows<const float> a;
  FloatRows<const float> other;  // of the residual: what should be like a
  FloatRows<float> out;
  int32_t batch, heads, size;
};
struct InverseParams : MatrixParams {};   // the start of a pseudo-inverse
struct ResidualParams : MatrixParams {};  // how far `other` is from a

// output += the convolution of the values along the first `len` tokens.
struct ConvolveParams {
  FloatRows<const float> v;     // [batch, heads / group, len, width]
  FloatRows<const float> taps;  // [1, heads, 1, num_taps]
  FloatRows<float> out;         // [batch, heads, rows, width]
  int32_t batch, heads, group, rows, width, len, num_taps;
};

// Blocks of the kernels: a tile of a product, a row, a head.
inline int64_t NumBlocks(const MultiplyParams& p) {
  return int64_t{p.batch} * p.heads * ProductTiles(p.rows) * ProductTiles(p.cols);
}
inline int64_t NumBlocks(const MeanParams& p) { return int64_t{p.batch} * p.heads * p.rows; }
inline int64_t NumBlocks(const ConvolveParams& p) { return int64_t{p.batch} * p.heads * p.rows; }
inline int64_t NumBlocks(const MatrixParams& p) { return int64_t{p.batch} * p.heads; }

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_COMPOSED_PARAMS_H_
