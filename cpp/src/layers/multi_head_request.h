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

MultiHeadRequest ReadMultiHead(const RequestReader& reader, const TensorView<const float>& query,
                               const TensorView<const float>& key,
                               const TensorView<const float>& value);
// Of query, key and value.
MultiHeadRequest ReadMultiHead(const RequestReader& reader);
// The same with one KV head. Throws Error(kShape).
MultiHeadRequest ReadMultiQuery(const RequestReader& reader);
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
