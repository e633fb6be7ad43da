// Gradients: vector-Jacobian products of heed/attention.h and heed/recurrent.h.
#ifndef HEED_GRADIENT_H_
#define HEED_GRADIENT_H_

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "heed/attention.h"
#include "heed/expression.h"
#include "heed/feature_map.h"
#include "heed/recurrent.h"
#include "heed/request.h"
#include "heed/tensor.h"
#include "heed/thread_pool.h"

namespace heed {

// Largest error of a float32 gradient of softmax attention against that of the float64 reference,
// for logits of size S up to 16, and S / 16 times as much beyond. Gradients are sums of terms of
// both signs, so errors are relative to the largest element of the same gradient. Where that has
// one element, or few, each a sum over all pairs of a head (slopes, sinks, a width, a temperature),
// they may all cancel: there errors are relative to the sum of the magnitudes of what is added.
// Docs and tests read this constant.
inline constexpr double kGradientMaxError = 4e-6;

// Where gradients go; those without a value are not computed. `d_lse` and the slopes are read.
struct AttentionGradients {
  // The gradient that arrives at lse, [batch, num_heads, q_len, 1]; absent = 0. Only where
  // Normalize says (lse).
  TensorView<const float> d_lse{};

  // The derivative of options.score_mod or prob_mod: replaces each score, or weight, by the
  // derivative at that score, or weight. That of an expression is CompileSlope().
  TileFunction score_mod_slope{};
  TileFunction prob_mod_slope{};

  // Shaped as q, k and v; float32, float16 or bfloat16, rounded once.
  StoredOutput d_q{};
  StoredOutput d_k{};
  StoredOutput d_v{};

  // Shaped as options.bias: summed over the extents that broadcast. Cells of -inf get 0.
  TensorView<float> d_bias{};
  // Shaped as options.distance_bias and options.bucket_bias.
  TensorView<float> d_distance_bias{};
  TensorView<float> d_bucket_bias{};
  // Shaped as options.log_gates, summed over the extents that broadcast.
  TensorView<float> d_log_gates{};
  // As many values as the options of the same name have. Empty = not computed.
  std::span<float> d_alibi_slopes{};
  std::span<float> d_sinks{};
  std::span<float> d_width{};
  std::span<float> d_temperature{};  // 0 where it is below min_temperature
  std::span<float> d_score_bias{};
  // Shaped as the options of the same name.
  TensorView<float> d_score_matrix{};
  TensorView<float> d_query_weight{};
  TensorView<float> d_key_weight{};
  TensorView<float> d_score_vector{};
  TensorView<float> d_relative_keys{};
  TensorView<float> d_relative_queries{};
  TensorView<float> d_relative_values{};
  TensorView<float> d_content_bias{};
  TensorView<float> d_position_bias{};
  TensorView<float> d_cope_table{};
};

// Compiles the derivative of an expression (heed/expression.h) by what it starts from: of a
// score_mod by `score`, of a prob_mod by `prob`. Captured tensors are constants. min, max and ?:
// take the slope of the side that they choose, of equal ones the first; abs has 0 at 0; floor,
// comparisons, &&, || and ! have none.
//
// Errors   as CompileExpression(); kUnsupported for a derivative of more operations than an
//          expression may have.
// Accuracy each operation is within 4 units in the last place of float32.
// Cost     one pass over the tile for every operation of the derivative: 1 to 4 of each of the
//          expression's.
TileFunction CompileSlope(std::string_view what, std::string_view text, ExpressionValue value,
                          std::vector<CapturedTensor> captured = {});

// Computes the gradients of a scalar L from d_out = dL / d output, for output = Attention(q, k, v):
// with p the weights, dP_ij = d_out_i . v_j and D_i = d_out_i . output_i - d_lse_i,
//
//   d_v_j = sum_i p_ij d_out_i          d_s_ij = p_ij (dP_ij - D_i)
//   d_q_i = scale sum_j d_s_ij k_j      d_k_j = scale sum_i d_s_ij q_i
//
// for softmax and dot products; docs/gradients.md has the others. The weights are computed again
// from q, k and lse, tile by tile.
//
// Shapes   q, k, v, options as in the call of Attention() that gave `out` and `lse`; d_out as out.
//          `lse` is needed, and `out` read, by normalisers that have one (heed/attention.h); the
//          others take no lse, and out may be absent.
// Empty row  every gradient exactly 0. What is not kept cannot matter: NaN or Inf in masked keys,
//          values, bias or padding, or in d_out of a row, reaches only what sees it.
// Errors   Error(kShape | kRange | kOption | kMemory), before anything is written, but kMemory may
//          leave results half written; kUnsupported for a score_mod or prob_mod without its slope.
// Accuracy kGradientMaxError.
// Cost     2.5 times the FLOPs of Attention(); counting the visible keys of relu and of averages
//          with masks takes 0.5 times as much more. A bias that broadcasts over batch, heads or
//          queries takes a second pass, 1 time. Normalisers that need whole rows run forward once
//          more; additive scores repeat every tanh, and add to each query and key pair by pair;
//          relative tables take plain loops beside the products. Allocates O(kv_len * (head_dim +
//          head_dim_v)) a KV head in flight, once more for each part of its queries (at most 8, by
//          shapes alone), what parameters and tables have in float64 for each of at most 8 parts
//          of a KV head, O((head_dim + head_dim_v) * tile) per thread, and 48 to 98 * kv_len
//          floats per thread for whole rows, half as much again with a prob_mod; never
//          O(q_len * kv_len).
// Threads  As Attention(): the same bits for any number of threads.
// Source   Dao et al. 2022, arXiv:2205.14135, appendix B.2; Dao 2023, arXiv:2307.08691.
void AttentionBackward(TensorView<const float> q, TensorView<const float> k,
                       TensorView<const float> v, TensorView<const float> out,
                       TensorView<const float> lse, TensorView<const float> d_out,
                       const AttentionOptions& options, const AttentionGradients& gradients,
                       ThreadPool* pool = nullptr);

// The same for any storage type, each its own. An `out` that was rounded to two bytes makes D_i,
// and with it gradients of q and k, as wrong as itself.
void AttentionBackward(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                       const StoredTensor& out, TensorView<const float> lse,
                       const StoredTensor& d_out, const AttentionOptions& options,
                       const AttentionGradients& gradients, ThreadPool* pool = nullptr);

// Largest error of a gradient of recurrent attention against that of the float64 reference,
// relative to the largest element of the same gradient, for what kRecurrentMaxError is promised
// for. Docs and tests read this constant.
inline constexpr double kRecurrentGradientMaxError = 2e-5;

// The same of the low-rank family's (PlanBackward), for what kLowRankMaxError is promised for; of
// Nystrom attention times the square of the largest row sum of |pinv|.
inline constexpr double kLowRankGradientMaxError = 6e-6;

// The same of the causal convolution's (PlanBackward, "causal_conv").
inline constexpr double kConvGradientMaxError = 5e-7;

// The way back through a feature map: replaces the values of rows, those that the map was given, by
// their gradients. `arriving` holds the gradients of the features, laid out as the rows are. Called
// as FeatureFunction is.
using FeatureBackward = std::function<void(const FeatureRows& rows, const float* arriving)>;

// Compiles the way back through an expression of one element (heed/feature_map.h): its derivative
// by `x`, as CompileSlope() does by `score`, times what arrives. Where 0 arrives, it stays 0.
// Errors, accuracy and cost as there.
FeatureBackward CompileFeatureBackward(std::string_view what, std::string_view text,
                                       std::vector<CapturedTensor> captured = {});

// Where gradients of recurrent attention go; those without a value are not computed.
// `d_final_state` and `feature_mod_backward` are read.
struct RecurrentGradients {
  // The gradient that arrives at the final state, shaped as it; absent = 0.
  TensorView<const float> d_final_state{};
  // Where options have a feature_mod: the way back through it.
  FeatureBackward feature_mod_backward{};

  // Shaped as q, k and v, last dimension contiguous. With FeatureMap::kComplement d_k is that of
  // the logarithms as keys, and d_log_decay that of the same logarithms as gates.
  TensorView<float> d_q{}, d_k{}, d_v{};
  // Shaped as the options of the same name: summed over the extents that broadcast. Where log_decay
  // is -inf (or exp of it 0) its gradient is 0.
  TensorView<float> d_log_decay{};
  TensorView<float> d_beta{};
  std::span<float> d_skip{};  // num_heads values; empty = not computed
  TensorView<float> d_bonus{};
  TensorView<float> d_erase_key{}, d_erase_rate{};
  TensorView<float> d_level_weights{};
  TensorView<float> d_projection{};
  std::span<float> d_norm_weight{}, d_norm_bias{};  // num_kv_heads * head_dim values, or empty
  std::span<float> d_position_rate{};               // mini_batch values, or empty
  TensorView<float> d_initial_state{};
};

// Computes the gradients of a scalar L from d_out = dL / d output, for RecurrentAttention(q, k, v,
// options). Forward is run again for the states; neither outputs nor states of the first time are
// needed. One token, backwards, with dS = dL / dS:
//
//   dS += scale q do^T,  dq = scale S do                  reading
//   dk = dS u,  du = dS^T k                               writing
//   dv = beta du,  dbeta = du . (v - S^T k)               erasing, with w = -beta du:
//   dk += S w,  dS += k w^T
//   dlog_decay = exp(log_decay) sum(S before it * dS)     decay
//   dS = diag(exp(log_decay)) dS
//
// Shapes   as in RecurrentAttention(); d_out [batch, num_heads, q_len, head_dim_v], last dimension
//          contiguous.
// Edges    Tokens beyond their length get exactly 0, and so do all gradients of a row whose
//          denominator is 0. NaN or Inf of a token, or arriving at it, reaches the gradients of
//          what it sees and of what sees it, and no other.
//          A projection is differentiated as it is, drawn or not. With random features the peaks of
//          the first and the last state have gradients as their other columns do.
// Errors   Error(kShape | kRange | kOption | kMemory) before anything is written, but kMemory may
//          leave results half written; kUnsupported, by name, for a feature_mod without
//          feature_mod_backward, and for level_weights with features or log_decay of channels.
// Accuracy kRecurrentGradientMaxError.
// Cost     3 to 5 times the multiply-adds of RecurrentAttention(), in chunks of kMaxChunkLen
//          whatever options.chunk_len is; from 2048 tokens on, the states once more. Memory for
//          each thread: a chunk, the states of 32 chunks, and one state for every 2048 tokens;
//          never O(q_len * kv_len). Chunks that hold NaN or an infinity take 32 times as long.
//          erase_key and mini_batch go back token by token, by vectors instead of chunks:
//          forward three more times, and memory for each thread of 96 states, one more for every
//          2048 tokens. level_weights go back level by level, above chunks as linear attention of
//          every level, with rows of queries, keys and values of one batch entry, and of their
//          gradients. Random features: the features of 512 tokens, of all heads, five times, and
//          one state for every 512 tokens.
// Threads  one task per batch entry and KV head; level_weights and random features share out
//          products instead. Same inputs give the same bits for any number of threads.
// Source   chunks backwards: Yang 2023, arXiv:2312.06635, and for delta rules Yang 2024,
//          arXiv:2406.06484.
void RecurrentBackward(TensorView<const float> q, TensorView<const float> k,
                       TensorView<const float> v, TensorView<const float> d_out,
                       const RecurrentOptions& options, const RecurrentGradients& gradients,
                       ThreadPool* pool = nullptr);

// Largest error of a gradient of a layer against that of the float64 reference, relative to the
// largest element of the same gradient, for inputs and projections of unit variance (logits of size
// 16). Docs and tests read this constant.
inline constexpr double kLayerGradientMaxError = 2e-5;
// The same for positions.
inline constexpr double kPositionGradientMaxError = 5e-7;

// Largest error of a gradient of a mechanism that composes attention (heed/compose.h, heed/graph.h,
// heed/attention_free.h, heed/set_attention.h) against that of the float64 reference, relative to
// the largest element of the same gradient, for logits of size 16. Docs and tests read this
// constant.
inline constexpr double kComposedGradientMaxError = 2e-5;

// Gradients of a request, for any row of the registry with the capability "gradient".
struct BackwardPlan {
  // What forward gives and backward needs: output, then lse where there is one.
  std::vector<OutputSpec> results;
  // One for each input of the request that has a gradient, under its name and with its shape.
  std::vector<OutputSpec> gradients;
};

// Validates the request. Throws Error; kUnsupported, by name, for what has no gradient.
BackwardPlan PlanBackward(const Request& request);

// Runs forward: `results` holds one tensor for each entry of the plan's.
//
// Errors   as PlanBackward(), and Error(kOption | kShape | kDType) for a result that is missing or
//          is not as the plan says, before anything is written; kMemory, which may leave
//          results half written.
// Accuracy, cost, threads  as Run() of the same request (heed/registry.h).
void RunForward(const Request& request, std::span<const NamedTensor> results,
                ThreadPool* pool = nullptr);

// Runs backward on the same request. `results` is what RunForward() wrote, `d_results` what arrives
// at them, by the same names: "output", and "lse" or not; `gradients` holds those entries of the
// plan's that are wanted. Vectors and tables are contiguous.
//
// Errors   as RunForward(), for results, d_results and gradients.
// Accuracy the constant of the row's family, above.
// Cost     of AttentionBackward() or RecurrentBackward() in their families; of other rows, whose
//          forward is run again, docs/gradients.md says what they take and keep.
// Threads  `pool` or the default pool. Same inputs give the same bits for any number of threads.
void RunBackward(const Request& request, std::span<const NamedTensor> results,
                 std::span<const NamedTensor> d_results, std::span<const NamedTensor> gradients,
                 ThreadPool* pool = nullptr);

}  // namespace heed

#endif  // HEED_GRADIENT_H_
