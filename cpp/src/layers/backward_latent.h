// The way back through multi-head latent attention.
#ifndef HEED_SRC_LAYERS_BACKWARD_LATENT_H_
#define HEED_SRC_LAYERS_BACKWARD_LATENT_H_

#include <span>

#include "heed/gradient.h"
#include "heed/latent.h"

namespace heed {

// Where gradients go, contiguous and shaped as what they are of; those without a value are not
// computed.
struct LatentGradients {
  TensorView<float> d_x{};
  TensorView<float> d_w_dq{}, d_w_uq{}, d_w_qr{}, d_w_dkv{}, d_w_kr{}, d_w_uk{}, d_w_uv{}, d_w_o{};
  std::span<float> d_norm_q{}, d_norm_kv{};
  AttentionGradients attention{};  // of the options; d_lse is read
};

// Gradients of MultiHeadLatent() from d_output, shaped as its output. Runs forward again, in the
// naive form whatever options.latent.form is: keys and values of every head are formed. All
// matrices but w_dq are there. Throws Error; kShape where the heads and rows of w_uq, w_qr, w_uk or
// w_uv do not lie in one row.
void MultiHeadLatentBackward(const TensorView<const float>& x, const LatentWeights& weights,
                             const MultiHeadLatentOptions& options,
                             const TensorView<const float>& d_output, const LatentGradients& to,
                             ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_LAYERS_BACKWARD_LATENT_H_
