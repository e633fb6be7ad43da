// What the kernels of layers, positions and the short convolution are given: plain numbers and
// device pointers.
#ifndef HEED_SRC_CUDA_LAYER_PARAMS_H_
#define HEED_SRC_CUDA_LAYER_PARAMS_H_

#include <cstdint>

#include "heed/layers.h"
#include "src/cuda/recurrent_params.h"

namespace heed::cuda {

// x_i = embedding[token] + position, and zeros beyond the length.
struct EmbedParams {
  const int32_t* tokens;             // [batch, rows]
  FloatRows<const float> embedding;  // [1, 1, vocabulary, width]
  FloatRows<const float> positions;  // [1, 1, at least rows, width], or absent
  const int32_t* lengths;            // [batch] or nullptr: rows
  FloatRows<float> out;              // [batch, 1, rows, width]
  int32_t batch, rows, width;
};

// The rows of a batch entry become one.
struct PoolParams {
  Pooling pooling;
  FloatRows<const float> rows;  // [batch, 1, len, width]
  const float* query;           // [width]: kAttention
  const int32_t* lengths;       // [batch] or nullptr: len
  double* weights;              // [batch, len]: scratch
  FloatRows<float> out;         // [1, 1, batch, width]
  int32_t batch, len, width;
};

// Where rows stand: row i of batch entry b at offsets[b or 0] + rows[b, i], rows[i] or i.
struct RowPlaces {
  const int64_t* offsets;
  const int32_t* rows;  // nullptr: 0, 1, 2, ...
  bool own_offsets, own_rows;

  HEED_DEVICE int64_t At(int b, int i, int len) const {
    const int64_t row = rows == nullptr ? i : rows[own_rows ? int64_t{b} * len + i : int64_t{i}];
    return offsets[own_offsets ? b : 0] + row;
  }
};

// Pairs of numbers that turn with the position: magnitude exp(growth (p - center)) (cos, sin)(f p).
struct PhaseRule {
  const double* frequency;
  const double* growth;  // nullptr: 0
  double magnitude, center;
};

// Pairs of dimensions, turned. `out` may be x.
struct RotateParams {
  FloatRows<const float> x;  // [batch, heads, len, width]
  FloatRows<float> out;
  RowPlaces places;
  PhaseRule phases;
  DevicePairs<float> cos, sin;  // [batch, 1, rows, pairs], or absent
  float sign;                   // of the sines of tables
  bool interleaved;             // pairs 2t and 2t + 1; else t and pairs + t
  int64_t grid_width;  // > 0: the first half turns by i / grid_width, the others by the rest
  int32_t batch, heads, len, width, pairs;
};

// x plus a row of numbers for the position: sines and cosines, or rows of a table.
struct PositionCodeParams {
  FloatRows<const float> x;  // [batch, heads, len, width]
  FloatRows<float> out;
  RowPlaces places;
  PhaseRule phases;
  int32_t pairs;
  bool interleaved;              // sines and cosines in turn; else sines, then cosines
  FloatRows<const float> table;  // [1, 1, rows, width], or absent: sines and cosines
  // [len] or nullptr: row i lies between two rows of the table, and has so much of the second.
  const int32_t *low, *high;
  const float* share;
  int32_t batch, heads, len, width;
};

// A filter over the last tokens of each channel.
struct ShortConvParams {
  FloatRows<const float> x,
      initial;                // [batch, heads, len, width], [..., taps - 1, width] or absent
  DevicePairs<float> weight;  // [1, heads, width, taps]
  DevicePairs<float> bias;    // [1, heads, 1, width], or absent
  const int32_t* lengths;     // [batch] or nullptr: len
  FloatRows<float> out;
  bool silu;
  int32_t batch, heads, len, width, taps;

  // Token t >= -(taps - 1); nullptr before the first one without a state.
  HEED_DEVICE const float* Token(int b, int h, int64_t t) const {
    if (t >= 0) return x.Row(b, h, t);
    return initial.data == nullptr ? nullptr : initial.Row(b, h, t + taps - 1);
  }
  HEED_DEVICE int Length(int b) const { return lengths == nullptr ? len : lengths[b]; }
};
// The last tokens, which may replace the state they came from.
struct ConvStateParams {
  ShortConvParams conv;  // `out` is the state
};

// Blocks of the kernels: a row; a batch entry; a head.
inline int64_t NumBlocks(const EmbedParams& p) { return int64_t{p.batch} * p.rows; }
inline int64_t NumBlocks(const PoolParams& p) { return p.batch; }
inline int64_t NumBlocks(const RotateParams& p) { return int64_t{p.batch} * p.heads * p.len; }
inline int64_t NumBlocks(const PositionCodeParams& p) { return int64_t{p.batch} * p.heads * p.len; }
inline int64_t NumBlocks(const ShortConvParams& p) { return int64_t{p.batch} * p.heads * p.len; }
inline int64_t NumBlocks(const ConvStateParams& p) { return int64_t{p.conv.batch} * p.conv.heads; }

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_LAYER_PARAMS_H_
