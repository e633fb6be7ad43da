// What the kernels that work on single numbers or rows between attentions are given: plain numbers
// and device pointers, passed by value.
#ifndef HEED_SRC_CUDA_ELEMENTWISE_PARAMS_H_
#define HEED_SRC_CUDA_ELEMENTWISE_PARAMS_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/recurrent_params.h"

namespace heed::cuda {

// What becomes of the numbers x, y and z of the same place. A name in brackets may be absent.
enum class MapOp : int32_t {
  kFill,       // factor
  kScale,      // factor x
  kAdd,        // x + y
  kSubtract,   // x - y z
  kMask,       // x y, and 0 where y is 0, whatever x is
  kAddMasked,  // that, added to [z]
  kCap,        // factor tanh(x / factor)
  kPositive,   // max(x, 0); NaN stays
  kNegative,   // min(x, 0); NaN stays
  kRelu,       // max(x, 0) [y]; so are the next three
  kGelu,
  kGeluTanh,
  kSilu,
};

// out = op(x, y, z) for every number of [batch, heads, rows, cols]; `out` may be one of them.
struct MapParams {
  MapOp op;
  DevicePairs<float> x, y, z;  // strides of 0 broadcast
  FloatRows<float> out;
  int32_t batch, heads, rows, cols;
  const int32_t* row_lengths;  // [batch] or nullptr: rows at or beyond become 0, and are not read
  float factor;
};

// Numbers of a block.
inline constexpr int kMapNumbers = 1024;

enum class NormKind : int32_t {
  kLayer,  // (x - mean) / sqrt(variance + epsilon)
  kRms,    // x / sqrt(mean of squares + epsilon)
  kUnit,   // x / |x|, 0 where that is 0
};

// Rows of x, normalised, times weight and factor, plus bias. `out` may be x.
struct NormParams {
  NormKind kind;
  FloatRows<const float> x;
  FloatRows<float> out;
  const float* weight;  // [width] or nullptr: 1
  const float* bias;    // [width] or nullptr: 0
  double epsilon, factor;
  int32_t batch, heads, rows, width;
};

// Rows times the sigmoid of their gates; empty rows stay 0, whatever their gates are.
struct GateParams {
  FloatRows<float> rows;       // [batch, heads, len, width]
  DevicePairs<float> gate;     // strides of 0 broadcast
  FloatRows<const float> lse;  // -infinity for empty rows; absent: those that are 0
  int32_t batch, heads, len, width;
};

// Takes the newest states over, but for rows at rest; what moves no farther than the tolerance
// comes to rest.
struct RestParams {
  FloatRows<const float> newest;
  FloatRows<float> states;  // [batch, heads, len, width]
  float* resting;           // [batch, heads, len]: not 0 for rows at rest
  double tolerance;
  int32_t batch, heads, len, width;
};

// out = weights v, without the keys that no head sees: where `scores` are -infinity for all of
// them.
struct SumValuesParams {
  FloatRows<const float> weights, scores;  // [batch, heads, len, kv_len]
  FloatRows<const float> v;                // [batch, heads / group, kv_len, width]
  FloatRows<float> out;                    // [batch, heads, len, width]
  int32_t batch, heads, group, len, kv_len, width;
};

// Blocks of the kernels: some numbers, or a row.
inline int64_t NumBlocks(const MapParams& p) {
  return (int64_t{p.batch} * p.heads * p.rows * p.cols + kMapNumbers - 1) / kMapNumbers;
}
inline int64_t NumBlocks(const NormParams& p) { return int64_t{p.batch} * p.heads * p.rows; }
inline int64_t NumBlocks(const GateParams& p) { return int64_t{p.batch} * p.heads * p.len; }
inline int64_t NumBlocks(const RestParams& p) { return int64_t{p.batch} * p.heads * p.len; }
inline int64_t NumBlocks(const SumValuesParams& p) { return int64_t{p.batch} * p.heads * p.len; }

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_ELEMENTWISE_PARAMS_H_
