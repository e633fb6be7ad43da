// The way back through bias_k and bias_v, the key and value that every query sees.
#ifndef HEED_SRC_LAYERS_BACKWARD_EXTRA_KEYS_H_
#define HEED_SRC_LAYERS_BACKWARD_EXTRA_KEYS_H_

#include <span>

#include "heed/layers.h"
#include "src/layers/multi_head.h"

namespace heed {

// What arrives at the heads, and what forward gave. Heads are [batch, num_heads, q_len, dim], lse
// has the extra keys in it.
struct ExtraKeyRows {
  TensorView<const float> q, heads, lse, d_heads;
  TensorView<const float> d_lse;   // absent = 0
  std::span<const char> left_out;  // heads that nothing arrives at
};

// Adds to d_q what the extra key gives to queries, and writes the gradients of bias_k and bias_v,
// num_kv_heads * head_dim and num_kv_heads * head_dim_v values; empty = not computed.
void ExtraKeysBackward(const MultiHeadShape& shape, const MultiHeadWeights& weights,
                       const MultiHeadOptions& options, const ExtraKeyRows& rows,
                       const TensorView<float>& d_q, std::span<float> d_bias_k,
                       std::span<float> d_bias_v, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_LAYERS_BACKWARD_EXTRA_KEYS_H_
