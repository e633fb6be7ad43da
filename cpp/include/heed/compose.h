// Mechanisms that compose exact attention: differential, talking heads, Hopfield retrieval, gated,
// pooling with learned queries, external memory, synthesizers. Every option of AttentionOptions
// passes through unless something else is said.
#ifndef HEED_COMPOSE_H_
#define HEED_COMPOSE_H_

#include <cstdint>
#include <span>

#include "heed/attention.h"

namespace heed {

// Whether differential attention normalises each head's output row.
enum class SubNorm {
  kRms,   // o / sqrt(mean(o^2) + epsilon) * norm_weight * (1 - lambda_init)
  kNone,  // o
};

struct DifferentialOptions {
  // Both maps take these. The scale defaults to 1 / sqrt(head_dim / 2).
  AttentionOptions attention;
  // How much of the second map is taken away: num_heads finite values, or one for all heads. Empty
  // = lambda_init, the value at which the paper's parametrisation starts.
  std::span<const float> lambda;
  double lambda_init = 0.8;  // in [0, 1]
  SubNorm sub_norm = SubNorm::kRms;
  std::span<const float> norm_weight;  // head_dim_v finite values; empty = 1
  double epsilon = 1e-5;               // > 0 and finite
};

// The difference of two softmax maps, which cancels what they have in common:
//   o = (softmax(scale q1 k1^T) - lambda softmax(scale q2 k2^T)) v, then the sub-norm per head.
//
// Shapes   q [batch, num_heads, q_len, head_dim], k [batch, num_kv_heads, kv_len, head_dim]: the
//          first half of head_dim, which is even, is q1 and k1, the second half q2 and k2 (the
//          paper's [Q1; Q2] = X W_Q). v [batch, num_kv_heads, kv_len, head_dim_v].
// Outputs  `weights` are the difference of the maps, before the sub-norm: rows sum to 1 - lambda.
//          lse and scores are refused: there are two of each.
// Empty row  output 0, weights 0.
// Errors   as Attention(), and for the fields above.
// Accuracy (1 + |lambda|) kAttentionMaxError before the sub-norm, which divides it by the root mean
//          square of the row.
// Cost     two calls of Attention() with half the head_dim; allocates one more output, and one more
//          [q_len, kv_len] per head when weights are asked for.
// Threads  as Attention().
// Source   Ye et al. 2024, Differential Transformer, arXiv:2410.05258, section 2.1.
void DifferentialAttention(TensorView<const float> q, TensorView<const float> k,
                           TensorView<const float> v, const DifferentialOptions& options,
                           const AttentionOutputs& outputs, ThreadPool* pool = nullptr);

// lambda_init of a layer, the first layer being 1: 0.8 - 0.6 exp(-0.3 (layer - 1)). layer >= 1.
double DifferentialLambdaInit(int64_t layer);

// lambda = exp(q1.k1) - exp(q2.k2) + lambda_init, from learned vectors of one size.
float DifferentialLambda(std::span<const float> q1, std::span<const float> k1,
                         std::span<const float> q2, std::span<const float> k2, double lambda_init);

struct TalkingHeadsOptions {
  // Options that are per head (bias, keep, ALiBi, sinks) speak of the heads after the first mixing.
  // Normalize::kSoftmax only, without prob_mod and dropout.
  AttentionOptions attention;
  // [num_heads, num_heads], contiguous, finite: from head (row) to head (column). Empty = identity.
  std::span<const float> mix_scores;   // before the normaliser: s'[h] = sum_g mix[g, h] s[g]
  std::span<const float> mix_weights;  // after it:              p'[h] = sum_g mix[g, h] p[g]
};

// Attention whose heads are mixed by learned matrices before and after the softmax.
// Order: score (with scale), mix_scores, softcap, bias, ALiBi, keep rules, normalize, mix_weights.
//
// Shapes   as Attention(). The paper's three head counts are one here: h_k = h = h_v = num_heads.
// Outputs  `lse` is that of each head's softmax, between the mixings; `weights` are those after
//          mix_weights, which multiply v; scores are refused.
// Empty row  A head without a key gives weights of 0 to the mixing; a row without a key in any head
//          has output 0. A key that no head keeps cannot matter.
// Errors   as Attention(), and for the matrices; kUnsupported for another normaliser than softmax,
//          for prob_mod and for dropout.
// Accuracy 2 kAttentionMaxError times the largest column sums of |mix_scores| and of |mix_weights|,
//          each at least 1.
// Cost     as Attention() and 4 num_heads^2 q_len kv_len FLOPs. Allocates num_heads rows of kv_len
//          for up to 8 queries per thread, and packed K and V of at least one batch entry.
// Threads  as Attention().
// Source   Shazeer et al. 2020, Talking-Heads Attention, arXiv:2003.02436, section 4.
void TalkingHeadsAttention(TensorView<const float> q, TensorView<const float> k,
                           TensorView<const float> v, const TalkingHeadsOptions& options,
                           const AttentionOutputs& outputs, ThreadPool* pool = nullptr);

struct HopfieldOptions {
  AttentionOptions attention;  // attention.scale is the paper's beta
  int64_t steps = 1;           // updates at most, in [1, 1000000]; the last one reads v
  double tolerance = 0;        // >= 0: a state that moves no farther (Euclid) stays where it is
};

// Retrieval from a modern continuous Hopfield network: states q move towards stored patterns k,
//   state <- softmax(beta state k^T) k,   at last   o = softmax(beta state k^T) v.
// One step is attention. With v = k the output is the retrieved pattern.
//
// Shapes   as Attention(); with more than one step k is as wide as q. relative_values are added in
//          the last step only.
// Outputs  `lse` and `weights` are those of the last step. scale * |state|^2 / 2 - lse falls with
//          every step (the paper's energy times beta, up to a constant) where all keys are kept.
// Empty row  output 0, weights 0, lse -inf.
// Errors   as Attention(), and for steps and tolerance. Stages of scores are refused.
// Accuracy kAttentionMaxError for one step. A step multiplies the error of its state by at most
//          beta times the square of the largest |k|.
// Cost     `steps` calls of Attention(), fewer when no state moves any more; allocates two tensors
//          like q.
// Threads  as Attention().
// Source   Ramsauer et al. 2020, Hopfield Networks is All You Need, arXiv:2008.02217, equation 3.
void HopfieldRetrieval(TensorView<const float> q, TensorView<const float> k,
                       TensorView<const float> v, const HopfieldOptions& options,
                       const AttentionOutputs& outputs, ThreadPool* pool = nullptr);

// Attention whose output is multiplied by a gate: o = Attention(q, k, v) * sigmoid(output_gate).
//
// Shapes   as Attention(). output_gate: extents broadcast (1) to [batch, num_heads, q_len,
//          head_dim_v]; a last extent of 1 is one gate per head.
// Outputs  lse, weights and scores are those of the attention, before the gate.
// Empty row  output 0, whatever its gate is.
// Errors   as Attention(), and for the gate.
// Accuracy 1.5 kAttentionMaxError: a gate is at most 1, and has an error of its own.
// Cost     one call of Attention() and one sigmoid per gate value; allocates one lse.
// Threads  as Attention().
// Source   Qiu et al. 2025, Gated Attention for Large Language Models, arXiv:2505.06708, section 2.
void GatedAttention(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                    TensorView<const float> output_gate, const AttentionOptions& options,
                    const AttentionOutputs& outputs, ThreadPool* pool = nullptr);

// Attention with learned queries, the same for every batch entry: a set of any size becomes
// num_queries vectors.
//
// Shapes   queries [1, num_heads, num_queries, head_dim]; k and v as in Attention(); output
//          [batch, num_heads, num_queries, head_dim_v].
// All else is as Attention() with q_len = num_queries, without copying the queries.
// Source   Lee et al. 2019, Set Transformer, arXiv:1810.00825, section 3.2.
void AttentionPooling(TensorView<const float> queries, TensorView<const float> k,
                      TensorView<const float> v, const AttentionOptions& options,
                      const AttentionOutputs& outputs, ThreadPool* pool = nullptr);

struct ExternalOptions {
  double scale = 1;  // on the scores; finite
  // Tokens at or beyond the length are no part of the set: they are never read, their rows are
  // empty. Empty = q_len, else [batch] values in [0, q_len].
  std::span<const int32_t> lengths;
};

// External attention: tokens attend to learned memory units, which know all tokens through a double
// normalisation: a softmax over the tokens for each unit, then rows that sum to 1.
//   a[i, u] = exp(s[i, u]) / sum_t exp(s[t, u])
//   o[i] = sum_u a[i, u] / sum_w a[i, w] memory_v[u].
//
// Shapes   q [batch, num_heads, q_len, head_dim];
//          memory_k [1, num_heads or 1, num_units, head_dim],
//          memory_v [1, num_heads or 1, num_units, head_dim_v]: the same for every batch entry.
// Outputs  `weights` [batch, num_heads, q_len, num_units]; lse and scores are refused.
// Empty row  (beyond the length) output 0, weights 0.
// Errors   as Attention(), and for the options above; kShape for a memory whose batch is not 1.
// Accuracy 3 kAttentionMaxError: two normalisers see the scores.
// Cost     two calls of Attention(), one with num_units queries and one with num_units keys: linear
//          in q_len. Allocates num_units floats per batch entry and head, 4 bytes a token where
//          lengths are given, and what Attention() does.
// Threads  as Attention().
// Source   Guo et al. 2021, Beyond Self-attention: External Attention using Two Linear Layers,
//          arXiv:2105.02358, equations 5 to 9.
void ExternalAttention(TensorView<const float> q, TensorView<const float> memory_k,
                       TensorView<const float> memory_v, const ExternalOptions& options,
                       const AttentionOutputs& outputs, ThreadPool* pool = nullptr);

// Dense synthesizer: every token predicts its row of scores by itself, without keys:
//   s[i, j] = relu(hidden[i]) . weight[j] + bias[j], then as Attention().
//
// Shapes   hidden [batch, num_heads, q_len, hidden_dim], projected (the paper's W_1 x + b_1);
//          weight [1, num_heads or 1, at least kv_len, hidden_dim] and bias [1, num_heads or 1, 1,
//          at least kv_len] (or absent), the paper's W_2 and b_2;
//          v [batch, num_heads or 1, kv_len, head_dim_v].
// Options  as Attention(); the scale defaults to 1.
// Empty row  as Attention().
// Errors   as Attention(), and for weight and bias: kShape where they do not reach to kv_len.
// Accuracy kAttentionMaxError, for scores of size S as Attention().
// Cost     as Attention() with hidden_dim + 1 dimensions; allocates copies of hidden and of weight,
//          each with one more column, for every head.
// Threads  as Attention().
// Source   Tay et al. 2020, Synthesizer, arXiv:2005.00743, section 3.1.
void DenseSynthesizer(TensorView<const float> hidden, TensorView<const float> weight,
                      TensorView<const float> bias, TensorView<const float> v,
                      const AttentionOptions& options, const AttentionOutputs& outputs,
                      ThreadPool* pool = nullptr);

// Random synthesizer: the scores are learned, the same for all inputs: softmax(scores) v.
//
// Shapes   scores [1, num_heads, at least q_len, at least kv_len]: the upper left corner counts; v
//          [batch, num_heads or 1, kv_len, head_dim_v]; q_len is that of the output.
// Options  as Attention(), but scale, softcap and bias are refused: the scores are parameters.
// Empty row  as Attention(); a score of -inf hides its key.
// Errors   as Attention(), and for scores: kShape where they do not reach to q_len and kv_len.
// Accuracy kAttentionMaxError, for scores of size S as Attention().
// Cost     as Attention() without products of queries and keys: 2 * num_heads * q_len * kv_len *
//          head_dim_v FLOPs per batch entry. The scores are read where they lie.
// Threads  as Attention().
// Source   Tay et al. 2020, Synthesizer, arXiv:2005.00743, section 3.2.
void RandomSynthesizer(TensorView<const float> scores, TensorView<const float> v,
                       const AttentionOptions& options, const AttentionOutputs& outputs,
                       ThreadPool* pool = nullptr);

}  // namespace heed

#endif  // HEED_COMPOSE_H_
