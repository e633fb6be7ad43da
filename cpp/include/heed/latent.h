// Multi-head latent attention: keys and values live in one small latent row per token.
#ifndef HEED_LATENT_H_
#define HEED_LATENT_H_

#include <optional>
#include <span>

#include "heed/attention.h"
#include "heed/position.h"

namespace heed {

// Largest error of an element of LatentAttention's and MultiHeadLatent's output against the float64
// reference, relative to max(1, max |output|), for inputs and projections of unit variance; of
// weights, absolute. It holds for both forms, so they differ by at most twice this. Docs and tests
// read this constant.
inline constexpr double kLatentMaxError = 2e-5;

// In which order the products are taken. Both forms compute the same.
enum class LatentForm {
  kNaive,     // keys and values of every head are formed from the latent rows, then attended to
  kAbsorbed,  // w_uk is multiplied into the queries and w_uv into the outputs: the heads attend to
              // the latent rows themselves, as multi-query attention. For decoding: a cache holds
              // kv_rank + rope_dim numbers a token
};

struct LatentOptions {
  // The scale defaults to 1 / sqrt(nope_dim + rope_dim) in both forms.
  AttentionOptions attention;
  LatentForm form = LatentForm::kNaive;
};

// Attention to latent rows:
//   k[h, j] = [latent_j w_uk[h]^T, k_rope_j],  v[h, j] = latent_j w_uv[h]^T,
//   o[h, i] = Attention(q[h, i], k[h], v[h]).
//
// Shapes   q [batch, num_heads, q_len, nope_dim + rope_dim], the last rope_dim already rotated;
//          latent [batch, 1, kv_len, kv_rank]; k_rope [batch, 1, kv_len, rope_dim], rotated, absent
//          for rope_dim 0; w_uk [1, num_heads, nope_dim, kv_rank]; w_uv [1, num_heads, head_dim_v,
//          kv_rank]; output [batch, num_heads, q_len, head_dim_v]. Last dimensions contiguous.
// Empty row  output 0, weights 0, lse -inf.
// Errors   as Attention(), but kMemory may leave results half written. Scores are refused, and
//          tables as wide as a query or a value: those of relative positions, and cope.
// Accuracy kLatentMaxError.
// Cost     kNaive: 2 num_heads kv_len kv_rank (nope_dim + head_dim_v) FLOPs a batch entry and
//          Attention(), allocates keys and values of all heads; kAbsorbed: the same with q_len for
//          kv_len, attention over kv_rank + rope_dim, allocates queries and outputs of that width.
// Threads  as Attention().
// Source   DeepSeek-AI 2024, DeepSeek-V2, arXiv:2405.04434, section 2.1.
void LatentAttention(TensorView<const float> q, TensorView<const float> latent,
                     TensorView<const float> k_rope, TensorView<const float> w_uk,
                     TensorView<const float> w_uv, const LatentOptions& options,
                     const AttentionOutputs& outputs, ThreadPool* pool = nullptr);

// The paper's matrices, [out, in] as PyTorch has them.
struct LatentWeights {
  TensorView<const float> w_dq{};  // [1, 1, q_rank, embed_dim]; absent = queries from x, q_rank =
                                   // embed_dim (DeepSeek-V2-Lite)
  TensorView<const float> w_uq;    // [1, num_heads, nope_dim, q_rank]
  TensorView<const float> w_qr{};  // [1, num_heads, rope_dim, q_rank]; absent with w_kr
  TensorView<const float> w_dkv;   // [1, 1, kv_rank, embed_dim]
  TensorView<const float> w_kr{};  // [1, 1, rope_dim, embed_dim]: one rotated key for all heads
  TensorView<const float> w_uk;    // [1, num_heads, nope_dim, kv_rank]
  TensorView<const float> w_uv;    // [1, num_heads, head_dim_v, kv_rank]
  TensorView<const float> w_o;     // [1, out_dim, num_heads, head_dim_v]
  // Factors of the RMS norms behind w_dq and w_dkv: q_rank and kv_rank values; empty = no norm.
  std::span<const float> norm_q_weight{}, norm_kv_weight{};
};

struct MultiHeadLatentOptions {
  LatentOptions latent;
  // Rotates w_qr's queries and w_kr's keys by their place in x. Absent = they are taken as they
  // come out of the projections.
  std::optional<RopePairing> rope;
  double rope_base = 10000;
  RopeScaling rope_scaling{};  // of the rotation; kDynamicNtk scales for len unless told otherwise
  double epsilon = 1e-6;       // of the norms; > 0 and finite
};

struct MultiHeadLatentOutputs {
  TensorView<float> output{};   // [batch, 1, len, out_dim]
  TensorView<float> lse{};      // [batch, num_heads, len, 1]
  TensorView<float> weights{};  // [batch, num_heads, len, len]
};

// The whole layer as self-attention:
//   c = norm(x W_dkv^T), k_rope = rope(x W_kr^T), a = norm(x W_dq^T),
//   q[h] = [a w_uq[h]^T, rope(a w_qr[h]^T)],  output = sum_h LatentAttention(q, c, k_rope)[h]
//   W_o,h.
//
// Shapes   x [batch, 1, len, embed_dim]. The rest as LatentAttention().
void MultiHeadLatent(TensorView<const float> x, const LatentWeights& weights,
                     const MultiHeadLatentOptions& options, const MultiHeadLatentOutputs& outputs,
                     ThreadPool* pool = nullptr);

}  // namespace heed

#endif  // HEED_LATENT_H_
