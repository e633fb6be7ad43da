// Blocks whose queries are learned: Set Transformer (inducing points, pooling) and Perceiver
// (a latent array).
#ifndef HEED_SET_ATTENTION_H_
#define HEED_SET_ATTENTION_H_

#include <optional>
#include <span>

#include "heed/layers.h"

namespace heed {

// Largest error of an element of these blocks against the float64 reference, relative to max(1,
// max |output|), for inputs and projections of unit variance. Docs and tests read this constant.
inline constexpr double kSetBlockMaxError = 4e-5;

struct SetBlockWeights {
  // kdim = vdim is the width of y, out_dim that of x; no w_o with SetResidual::kProjected.
  MultiHeadWeights attention;
  // Values for each element of x; empty = 1 and 0.
  std::span<const float> norm1_weight{}, norm1_bias{}, norm2_weight{}, norm2_bias{};
  TensorView<const float> w_ff;   // [1, 1, embed_dim, embed_dim]
  std::span<const float> b_ff{};  // embed_dim values; empty = 0
};

// What a block adds to that which its queries read.
enum class SetResidual {
  kInput,      // x, as in the paper
  kProjected,  // x W_q + b_q, as in the authors' code (juho-lee/set_transformer): w_o and b_o do
               // not exist, and the default of the scale is 1 / sqrt(embed_dim)
};

struct SetBlockOptions {
  MultiHeadOptions attention;
  std::optional<Norm> norm = Norm::kLayer;  // absent = no norms, the default of the authors' code
  SetResidual residual = SetResidual::kInput;
  double epsilon = 1e-5;  // > 0 and finite
};

// Multihead attention block (MAB): x attends to y.
//   h = norm1(x + MultiHead(x, y, y)),  output = norm2(h + relu(h W_ff + b_ff))
// and with SetResidual::kProjected, where MultiHead() gives its heads side by side,
//   h = norm1(x W_q + b_q + MultiHead(x, y, y)).
// SAB is x = y. PMA, pooling by multihead attention, is a learned x with one row per result.
//
// Shapes   x [batch or 1, 1, q_len, embed_dim] (1: the same for every batch entry), y [batch, 1,
//          kv_len, kdim], output [batch, 1, q_len, embed_dim].
// Empty row  the attention gives b_o; the rest goes on.
// Errors   as MultiHead().
// Accuracy kSetBlockMaxError.
// Cost     MultiHead() and 2 rows embed_dim^2 FLOPs. Allocates two tensors like the output.
// Threads  as MultiHead().
// Source   Lee et al. 2019, Set Transformer, arXiv:1810.00825, equations 6, 7, 8 and 11.
void SetAttentionBlock(TensorView<const float> x, TensorView<const float> y,
                       const SetBlockWeights& weights, const SetBlockOptions& options,
                       TensorView<float> output, ThreadPool* pool = nullptr);

// Induced set attention block (ISAB): a few learned points attend to the set, then the set to them.
//   h = MAB(inducing, x; first),  output = MAB(x, h; second)
// `options` serve the first block, whose keys are the set; of the attention options the second
// takes the scale only: all its keys exist.
//
// Shapes   x [batch, 1, len, embed_dim], inducing [1, 1, num_inducing, dim], output like x.
// Cost     linear in len. Allocates [num_inducing, dim] per batch entry beside what MAB does.
// Source   as SetAttentionBlock, equations 9 and 10. The rest as there.
void InducedSetAttention(TensorView<const float> x, TensorView<const float> inducing,
                         const SetBlockWeights& first, const SetBlockWeights& second,
                         const SetBlockOptions& options, TensorView<float> output,
                         ThreadPool* pool = nullptr);

struct PerceiverWeights {
  MultiHeadWeights attention;  // queries from the latents; out_dim is their width
  // Norms of the latents, of the inputs, and before the feed-forward network; empty = 1 and 0.
  std::span<const float> norm1_weight{}, norm1_bias{}, key_norm_weight{}, key_norm_bias{};
  std::span<const float> norm2_weight{}, norm2_bias{};
  TensorView<const float> w_up;             // [1, 1, ff_dim, embed_dim]
  TensorView<const float> w_down;           // [1, 1, embed_dim, ff_dim]
  std::span<const float> b_up{}, b_down{};  // empty = 0
};

struct PerceiverOptions {
  MultiHeadOptions attention;
  Activation activation = Activation::kGelu;  // kGeluTanh where jax.nn.gelu trained the weights
  // Whether the latents are added to what they read: the authors' use_query_residual.
  bool query_residual = true;
  double epsilon = 1e-5;  // of the layer norms; > 0 and finite
};

// The cross-attention block of the Perceiver: a small array of latents reads an array of any
// length. Its latent self-attention is TransformerBlock().
//   z = latents + MultiHead(norm1(latents), norm(input)),
//   output = z + act(norm2(z) W_up + b_up) W_down + b_down
// without query_residual z = MultiHead(...) alone. act is options.activation.
//
// Shapes   latents [batch or 1, 1, num_latents, embed_dim], input [batch, 1, len, kdim], output
//          [batch, 1, num_latents, embed_dim].
// Empty row  the attention gives b_o; the rest goes on.
// Errors   as MultiHead(). The attention gives rows of embed_dim also without query_residual.
// Accuracy kSetBlockMaxError.
// Cost     linear in len. Allocates a tensor like input, three like the output and one of
//          [num_latents, ff_dim] per batch entry, beside what MultiHead() does.
// Threads  as MultiHead().
// Source   Jaegle et al. 2021, Perceiver, arXiv:2103.03206, section 3.2 and appendix C.
void PerceiverBlock(TensorView<const float> latents, TensorView<const float> input,
                    const PerceiverWeights& weights, const PerceiverOptions& options,
                    TensorView<float> output, ThreadPool* pool = nullptr);

}  // namespace heed

#endif  // HEED_SET_ATTENTION_H_
