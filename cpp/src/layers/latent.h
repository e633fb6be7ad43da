// Latent attention after validation.
#ifndef HEED_SRC_LAYERS_LATENT_H_
#define HEED_SRC_LAYERS_LATENT_H_

#include <cstdint>

#include "heed/latent.h"
#include "src/exact/attention_spans.h"

namespace heed {

struct LatentShape {
  int64_t batch, len, embed_dim, num_heads;
  int64_t q_rank, kv_rank, nope_dim, rope_dim, head_dim_v, out_dim;
};

// All weights by the names of the fields: a new one does not compile until it stands here.
template <class Visit>
void ForEachView(const LatentWeights& weights, const Visit& visit) {
  const auto& [w_dq, w_uq, w_qr, w_dkv, w_kr, w_uk, w_uv, w_o, norm_q_weight, norm_kv_weight] =
      weights;
  visit("w_dq", w_dq);
  visit("w_uq", w_uq);
  visit("w_qr", w_qr);
  visit("w_dkv", w_dkv);
  visit("w_kr", w_kr);
  visit("w_uk", w_uk);
  visit("w_uv", w_uv);
  visit("w_o", w_o);
  visit("norm_q_weight", norm_q_weight);
  visit("norm_kv_weight", norm_kv_weight);
}

// The rotation of queries and keys.
RopeOptions RotationOf(const MultiHeadLatentOptions& options);

// Checks everything but the outputs; throws Error.
LatentShape ValidateMultiHeadLatent(TensorView<const float> x, const LatentWeights& weights,
                                    const MultiHeadLatentOptions& options, bool wants_lse);

}  // namespace heed

#endif  // HEED_SRC_LAYERS_LATENT_H_
