// The transformer block after validation, and the parts that other layers share.
#ifndef HEED_SRC_LAYERS_TRANSFORMER_BLOCK_H_
#define HEED_SRC_LAYERS_TRANSFORMER_BLOCK_H_

#include "heed/layers.h"
#include "src/layers/multi_head.h"

namespace heed {

// All weights by the names of the fields: a new one does not compile until it stands here.
template <class Visit>
void ForEachView(const TransformerBlockWeights& weights, const Visit& visit) {
  const auto& [attention, norm1_weight, norm1_bias, norm2_weight, norm2_bias, w_up, w_down, w_gate,
               b_up, b_gate, b_down] = weights;
  ForEachView(attention, visit);
  visit("norm1_weight", norm1_weight);
  visit("norm1_bias", norm1_bias);
  visit("norm2_weight", norm2_weight);
  visit("norm2_bias", norm2_bias);
  visit("w_up", w_up);
  visit("w_down", w_down);
  visit("w_gate", w_gate);
  visit("b_up", b_up);
  visit("b_gate", b_gate);
  visit("b_down", b_down);
}

// Checks everything but the output; throws Error.
void ValidateTransformerBlock(TensorView<const float> x, const TransformerBlockWeights& weights,
                              const TransformerBlockOptions& options);

// Normalises the rows of x into `to`, which may be x.
struct RowNorm {
  Norm norm = Norm::kLayer;
  double epsilon = 1e-5;
  std::span<const float> weight, bias;  // empty = 1 and 0
  void operator()(const TensorView<const float>& x, const TensorView<float>& to,
                  ThreadPool& pool) const;
};

}  // namespace heed

#endif  // HEED_SRC_LAYERS_TRANSFORMER_BLOCK_H_
