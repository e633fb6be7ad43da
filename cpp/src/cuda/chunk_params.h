// What the kernels of chunked recurrent attention are given: plain numbers and device pointers,
// passed by value.
#ifndef HEED_SRC_CUDA_CHUNK_PARAMS_H_
#define HEED_SRC_CUDA_CHUNK_PARAMS_H_

#include <cstdint>

#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"
#include "src/cuda/recurrent_params.h"

namespace heed::cuda {

// Tokens that meet as matrices, and columns of values that a block takes.
inline constexpr int kChunkTokens = 64;
inline constexpr int kSliceCols = 64;

// Blocks of ChunkReads for up to kDim features that a multiprocessor has registers for: with three
// of 128 features some spilled (nvcc 13.0).
template <int kDim>
inline constexpr int kResidentReads = kDim == 64 ? 3 : 2;
template <int kDim>
inline constexpr int kResidentSums = kDim == 64 ? 5 : 3;

struct ChunkParams {
  DeviceRows q, k, v;
  DeviceOutput output;
  FloatRows<const float> initial_state;
  FloatRows<float> final_state;
  DevicePairs<float> log_decay, beta;
  const float* skip;           // [num_heads] or nullptr
  const int32_t* key_lengths;  // [batch] or nullptr
  // [units, spans, features, cols]: what the tokens of a span add to a state of zeros, then the
  // state before the span. `cols` counts the sums of keys, the last column with normalize.
  float* states;
  float* factors;  // [units, spans]: what a span multiplies the state before it by

  int32_t num_kv_heads, group, len, features, width, cols;
  int32_t units, slices;               // batch * num_kv_heads; of kSliceCols columns of values
  int32_t chunks, spans, span_chunks;  // of a sequence; all spans but the last are as long
  FeatureMap feature_map;
  float scale;
  bool normalize;

  HEED_DEVICE float* StateOf(int unit, int span) const {
    return states + (int64_t{unit} * spans + span) * features * cols;
  }
};

// A tensor in another type.
struct ConvertParams {
  DeviceRows from;
  DeviceOutput to;
  int32_t heads, len;
  int64_t numbers;  // of the tensor
};
inline constexpr int kConvertNumbers = 1024;  // of a block

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_CHUNK_PARAMS_H_
