// The multi-head attention inside a request, under the names of its mechanism.
#ifndef HEED_SRC_LAYERS_MULTI_HEAD_REQUEST_H_
#define HEED_SRC_LAYERS_MULTI_HEAD_REQUEST_H_

#include "heed/layers.h"
#include "src/request_reader.h"

namespace heed {

struct MultiHeadRequest {
  TensorView<const float> query, key, value;
  MultiHeadWeights weights;
  MultiHeadOptions options;
  bool return_lse = false, return_weights = false, average_weights = false;
};

// What the projections of keys, values and output are called: their shapes differ.
struct HeadNames {
  const char *w_k, *w_v, *w_o, *b_k, *b_v, *b_o;
  int kv_rank;  // 3 with one matrix a KV head, 2 with one for all
};

// Of self-attention: every input is embed_dim wide, and the output.
inline constexpr HeadNames kSelfNames = {"w_k_self", "w_v_self", "w_o_self", "b_k",
                                         "b_v",      "b_o_self", 3};

MultiHeadRequest ReadMultiHead(const RequestReader& reader, const TensorView<const float>& query,
                               const TensorView<const float>& key,
                               const TensorView<const float>& value, const HeadNames& names);

}  // namespace heed

#endif  // HEED_SRC_LAYERS_MULTI_HEAD_REQUEST_H_
