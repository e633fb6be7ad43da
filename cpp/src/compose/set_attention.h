// Set and Perceiver blocks after validation.
#ifndef HEED_SRC_COMPOSE_SET_ATTENTION_H_
#define HEED_SRC_COMPOSE_SET_ATTENTION_H_

#include "heed/set_attention.h"
#include "src/layers/multi_head.h"

namespace heed {

// All weights by the names of the fields: a new one does not compile until it stands here.
template <class Visit>
void ForEachView(const SetBlockWeights& weights, const Visit& visit) {
  const auto& [attention, norm1_weight, norm1_bias, norm2_weight, norm2_bias, w_ff, b_ff] = weights;
  ForEachView(attention, visit);
  visit("norm1_weight", norm1_weight);
  visit("norm1_bias", norm1_bias);
  visit("norm2_weight", norm2_weight);
  visit("norm2_bias", norm2_bias);
  visit("w_ff", w_ff);
  visit("b_ff", b_ff);
}
template <class Visit>
void ForEachView(const PerceiverWeights& weights, const Visit& visit) {
  const auto& [attention, norm1_weight, norm1_bias, key_norm_weight, key_norm_bias, norm2_weight,
               norm2_bias, w_up, w_down, b_up, b_down] = weights;
  ForEachView(attention, visit);
  visit("norm1_weight", norm1_weight);
  visit("norm1_bias", norm1_bias);
  visit("key_norm_weight", key_norm_weight);
  visit("key_norm_bias", key_norm_bias);
  visit("norm2_weight", norm2_weight);
  visit("norm2_bias", norm2_bias);
  visit("w_up", w_up);
  visit("w_down", w_down);
  visit("b_up", b_up);
  visit("b_down", b_down);
}

// Rows [1 or batch, 1, len, dim] as every batch entry sees them.
TensorView<const float> RowsOfBatch(TensorView<const float> rows, int64_t batch);

// Check everything but the output; throw Error. `x` and `latents` have the batch of the other.
void ValidateSetBlock(const TensorView<const float>& x, const TensorView<const float>& y,
                      const SetBlockWeights& weights, const SetBlockOptions& options);
void ValidatePerceiver(const TensorView<const float>& latents, const TensorView<const float>& input,
                       const PerceiverWeights& weights, const PerceiverOptions& options);

// The options with the scale that they stand for when none is given.
SetBlockOptions WithOwnScale(const SetBlockOptions& options, int64_t embed_dim);

// The options of the second block of an induced set.
SetBlockOptions OptionsOfSecond(const SetBlockOptions& options);

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_SET_ATTENTION_H_
