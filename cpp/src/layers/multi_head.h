// Multi-head attention after validation.
#ifndef HEED_SRC_LAYERS_MULTI_HEAD_H_
#define HEED_SRC_LAYERS_MULTI_HEAD_H_

#include <cstdint>

#include "heed/layers.h"

namespace heed {

struct MultiHeadShape {
  int64_t batch, q_len, kv_len;
  int64_t num_heads, num_kv_heads, head_dim, head_dim_v;
  int64_t out_dim;
  int64_t extra;  // keys that every query sees, behind those of `key`
};

// Checks everything but the outputs; throws Error.
MultiHeadShape ValidateMultiHead(TensorView<const float> query, TensorView<const float> key,
                                 TensorView<const float> value, const MultiHeadWeights& weights,
                                 const MultiHeadOptions& options, bool wants_lse);

}  // namespace heed

#endif  // HEED_SRC_LAYERS_MULTI_HEAD_H_
