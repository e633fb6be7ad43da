// What the recurrent kernel is given: plain numbers and device pointers, passed by value.
#ifndef HEED_SRC_CUDA_RECURRENT_PARAMS_H_
#define HEED_SRC_CUDA_RECURRENT_PARAMS_H_

#include <algorithm>
#include <cstdint>

#include "heed/recurrent.h"
#include "src/cuda/attention_params.h"
#include "src/cuda/device.h"

namespace heed::cuda {

// Rows of floats [batch, heads, len, width]; data == nullptr: absent.
template <class T>
struct FloatRows {
  T* data;
  int64_t strides[3];

  HEED_DEVICE T* Row(int b, int h, int64_t i) const {
    return data + b * strides[0] + h * strides[1] + i * strides[2];
  }
};

// What a kernel is given of a tensor.
template <class T>
FloatRows<T> RowsOf(const TensorView<T>& view) {
  FloatRows<T> rows{};
  rows.data = view.data;
  std::copy_n(view.strides.begin(), 3, rows.strides);
  return rows;
}

inline DevicePairs<float> NumbersOf(const TensorView<const float>& view) {
  DevicePairs<float> numbers{};
  numbers.data = view.data;
  std::copy(view.strides.begin(), view.strides.end(), numbers.strides);
  return numbers;
}

// Rows of a column of the state in a thread. A column has as many threads as its rows want, 4, 8 or
// 16 neighbours.
inline constexpr int kStateRows = 16;

struct RecurrentParams {
  FloatRows<const float> q, k, v;
  FloatRows<float> output, final_state;
  FloatRows<const float> initial_state, erase_key, erase_rate, bonus, projection, level_weights;
  FloatRows<float>
      states;  // where states lie that registers cannot hold: the final state, or memory
  DevicePairs<float> log_decay, beta;
  const float* skip;           // [num_heads] or nullptr
  const int32_t* key_lengths;  // [batch] or nullptr
  const int64_t* positions;    // [batch], of the first token, or nullptr: 0
  const float* norm_weight;    // [num_kv_heads, head_dim] or nullptr
  const float* norm_bias;
  const float* position_rate;  // [mini_batch] or nullptr: ones
  // What the initial state holds beyond the columns of values, [batch, num_kv_heads, features,
  // sum_cols], copied before any block may write it; nullptr: zeros.
  float* initial_sums;
  int32_t sum_cols;  // sums of keys, and peaks of random features

  int32_t num_heads, num_kv_heads, group, q_len, kv_len;
  int32_t head_dim, features, width;  // of q and k; rows of the state; columns of v
  int32_t col_blocks;                 // of a state
  FeatureMap feature_map;
  int32_t num_states;  // of levels
  int64_t mini_batch;
  double norm_epsilon;
  int64_t period;  // kCosine
  float scale, query_factor, key_factor;
  bool normalize, causal, delta;

  HEED_DEVICE float* InitialSums(int b, int h, int c) const {
    return initial_sums + ((int64_t{b} * num_kv_heads + h) * features + c) * sum_cols;
  }
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_RECURRENT_PARAMS_H_
