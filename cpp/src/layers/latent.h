// Latent attention after validation.
#ifndef HEED_SRC_LAYERS_LATENT_H_
#define HEED_SRC_LAYERS_LATENT_H_

#include <cstdint>

#include "heed/latent.h"

namespace heed {

struct LatentShape {
  int64_t batch, len, embed_dim, num_heads;
  int64_t q_rank, kv_rank, nope_dim, rope_dim, head_dim_v, out_dim;
};

// Checks everything but the outputs; throws Error.
LatentShape ValidateMultiHeadLatent(TensorView<const float> x, const LatentWeights& weights,
                                    const MultiHeadLatentOptions& options, bool wants_lse);

}  // namespace heed

#endif  // HEED_SRC_LAYERS_LATENT_H_
