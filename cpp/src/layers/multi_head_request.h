// Layers inside a request, under the names of their mechanisms.
#ifndef HEED_SRC_LAYERS_MULTI_HEAD_REQUEST_H_
#define HEED_SRC_LAYERS_MULTI_HEAD_REQUEST_H_

#include <span>

#include "heed/latent.h"
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

inline constexpr HeadNames kOfEveryHead = {"w_k", "w_v", "w_o", "b_k", "b_v", "b_o", 3};
inline constexpr HeadNames kSharedHeads = {"w_k_shared", "w_v_shared", "w_o", "b_k_shared",
                                           "b_v_shared", "b_o",        2};
// Of self-attention: every input is embed_dim wide, and the output.
inline constexpr HeadNames kSelfNames = {"w_k_self", "w_v_self", "w_o_self", "b_k",
                                         "b_v",      "b_o_self", 3};

MultiHeadRequest ReadMultiHead(const RequestReader& reader, const TensorView<const float>& query,
                               const TensorView<const float>& key,
                               const TensorView<const float>& value, const HeadNames& names);
// Where the results that the request asks for go.
MultiHeadOutputs FindOutputs(const MultiHeadRequest& r, std::span<const NamedTensor> outputs);

// transformer_block, attention_classifier and multi_head_latent under the names of their rows.
struct BlockRequest {
  TensorView<const float> x;
  TransformerBlockWeights weights;
  TransformerBlockOptions options;
};
BlockRequest ReadBlock(const RequestReader& reader);

struct ClassifierRequest {
  TensorView<const int32_t> tokens;
  AttentionClassifierWeights weights;
  AttentionClassifierOptions options;
};
ClassifierRequest ReadClassifier(const RequestReader& reader);

struct LatentRequest {
  TensorView<const float> x;
  LatentWeights weights;
  MultiHeadLatentOptions options;
  bool return_lse = false, return_weights = false;
};
LatentRequest ReadLatent(const RequestReader& reader);

}  // namespace heed

#endif  // HEED_SRC_LAYERS_MULTI_HEAD_REQUEST_H_
