// Analysis: what attention weights say, exactly, without ever holding the [q_len, kv_len] matrix.
//
// Everything here follows from q, k and the options of Attention(); values are asked for only where
// they matter. The weights are those that AttentionOutputs::weights would hold.
#ifndef HEED_ANALYSIS_H_
#define HEED_ANALYSIS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "heed/attention.h"
#include "heed/tensor.h"
#include "heed/thread_pool.h"

namespace heed {

// Errors against the float64 reference follow from those of the weights, kAttentionMaxError (in
// proportion to logits beyond 16). Maxima and top values: that. Sums over a row (entropy in nats,
// distance over its largest) times 1 + log(kv_len); sums over rows: times the number of rows.
inline constexpr double kAnalysisMaxError = 2e-6;

// What Analyze() computes: everything that has a value. i counts queries, j keys, p the weights.
struct AnalysisOutputs {
  // [batch, num_heads, q_len, 1]: -sum_j p log p in nats, with 0 log 0 = 0; what a sink takes is
  // not a key and not in the sum. In [0, log kv_len] for rows that sum to 1; 0 for an empty row.
  TensorView<float> entropy{};
  // [batch, num_heads, q_len, top_k], largest first, ties to the lower index: the largest weights
  // and their keys; 0 and -1 where fewer have a weight above 0. The extent top_k: 1 to kv_len.
  TensorView<float> top_weights{};
  TensorView<int32_t> top_indices{};
  // [batch, num_heads, q_len, 1]: the first of those.
  TensorView<float> max_weight{};
  TensorView<int32_t> max_index{};
  // [batch, num_heads, q_len, 1]: sum_j p |i + query_offset - j|. Needs query_offset when q_len and
  // kv_len differ.
  TensorView<float> expected_distance{};
  // [batch, num_heads, kv_len, 1]: sum_i p, the attention that each key receives.
  TensorView<float> column_sums{};
  // [batch, num_heads, q_len, 1]: as AttentionOutputs::lse.
  TensorView<float> lse{};
};

// Computes statistics of the weights.
//
// Shapes   q [batch, num_heads, q_len, head_dim], k [batch, num_kv_heads, kv_len, head_dim].
// lse      absent, or what Attention() returned for the same q, k and options: spares the first of
//          two passes. Cannot be given for normalisers without one, nor beside outputs.lse.
// NaN      a row with a weight that is NaN has entropy, distance and all its top weights NaN, and
//          indices -1.
// Errors   Error(kShape | kRange | kOption | kUnsupported | kMemory), before anything is written.
// Accuracy kAnalysisMaxError.
// Cost     the scores twice (once when lse is given), no values: 4 * num_heads * q_len * kv_len *
//          head_dim FLOPs; entropy adds a logarithm a pair. Allocates what Attention() does, 16
//          bytes a row, 8 bytes for each top weight, and for column sums at most 8 * kv_len * (32
//          * num_heads / num_kv_heads + batch * num_heads) bytes.
// Threads  as Attention(): same bits for any number of threads.
void Analyze(const StoredTensor& q, const StoredTensor& k, const AttentionOptions& options,
             TensorView<const float> lse, const AnalysisOutputs& outputs,
             ThreadPool* pool = nullptr);

// Queries [q_begin, q_end) and keys [k_begin, k_end).
struct WeightsRange {
  int64_t q_begin = 0;
  int64_t q_end = 0;
  int64_t k_begin = 0;
  int64_t k_end = 0;
};

// Writes the weights of a rectangle of pairs: weights [batch, num_heads, q_end - q_begin,
// k_end - k_begin]. Arguments, errors and accuracy as Analyze(), but kMemory may leave them half
// written. With lse, the cost is that of the tiles that the rectangle touches; without, the rows'
// scores against all keys besides.
void WeightsTile(const StoredTensor& q, const StoredTensor& k, const AttentionOptions& options,
                 TensorView<const float> lse, const WeightsRange& range, TensorView<float> weights,
                 ThreadPool* pool = nullptr);

// How alike the maps of two heads of a batch entry are; each [batch, num_heads, num_heads, 1].
struct HeadSimilarityOutputs {
  // <A, B> / (|A| |B|), the maps as long vectors; 0 when one is all zeros.
  TensorView<float> cosine{};
  // |A - B|, Frobenius norm.
  TensorView<float> frobenius{};
  // Mean over queries of the Jensen-Shannon divergence of their rows, in nats, [0, log 2].
  // Source: Lin 1991, doi:10.1109/18.61115.
  TensorView<float> jensen_shannon{};
};

// Compares the maps of all pairs of heads. Arguments, errors and threads as Analyze().
//
// Accuracy 4 * kAnalysisMaxError, of Frobenius norms times q_len.
// Cost     num_heads^2 / 2 * q_len * kv_len multiply-adds (and logarithms, for jensen_shannon)
//          beside the weights; allocates a panel of rows of all maps, the larger of 4 MiB and
//          32 * batch * num_heads * kv_len bytes.
void HeadSimilarity(const StoredTensor& q, const StoredTensor& k, const AttentionOptions& options,
                    const HeadSimilarityOutputs& outputs, ThreadPool* pool = nullptr);

// One layer of a stack, whose keys are the same tokens as its queries: q_len == kv_len.
struct RolloutLayer {
  RolloutLayer(const StoredTensor& queries, const StoredTensor& keys,
               const AttentionOptions& of_layer = {})
      : q(queries), k(keys), options(of_layer) {}
  RolloutLayer(TensorView<const float> queries, TensorView<const float> keys,
               const AttentionOptions& of_layer = {})
      : q(queries), k(keys), options(of_layer) {}
  StoredTensor q, k;
  AttentionOptions options;
};

// Attention rollout: rows of the product A'_n ... A'_2 A'_1 with A' = residual I + (1 - residual)
// mean_h A_h, layer 1 first in `layers`. The rows that the result starts from are `start`, [batch,
// 1, rows, len]: a one-hot row asks where that output token comes from. output: the same shape, not
// the same memory. Rows stay non-negative and sum to what they summed to, unless a row of weights
// is empty or has a sink.
//
// Errors   as Analyze(); residual must lie in [0, 1]; kMemory may leave output half written.
// Accuracy kAnalysisMaxError for each layer, for rows of `start` that sum to 1.
// Cost     per layer and 16 rows, the scores twice and 32 * num_heads * len^2 FLOPs. Allocates at
//          most 128 * len * (32 + batch * num_kv_heads) bytes and two copies of the rows.
// Threads  as Analyze().
// Source   Abnar & Zuidema 2020, arXiv:2005.00928, section 3.
void Rollout(std::span<const RolloutLayer> layers, double residual, TensorView<const float> start,
             TensorView<float> output, ThreadPool* pool = nullptr);

// Attention flow: for each source token of the last layer, the largest flow that reaches each token
// below the first layer, where the edge from token i of layer l to token j of the layer below
// carries at most maps[l][i][j].
//
// Shapes   maps [batch, layers, len, len], non-negative (the paper's: residual I + (1 - residual) *
//          mean_h A_h); sources [num] in [0, len); output [batch, 1, num, len].
// Errors   Error(kShape | kRange | kOption | kMemory), before anything is written: kRange for a
//          capacity that is negative or not finite, for a source that is no token, and for layers *
//          len^2 above kMaxFlowEdges.
// Accuracy flows are float64, and rounded to float32 once.
// Cost     one maximum-flow problem for each pair of a source and a token, with layers * len^2
//          edges: for small inputs. Allocates 16 * layers * len^2 bytes per thread for the edges,
//          and four numbers for each token of each layer.
// Threads  `pool` or the default pool, a task for each pair. Same bits for any number of threads.
// Source   Abnar & Zuidema 2020, arXiv:2005.00928, section 3; blocking flows: Dinic 1970.
inline constexpr int64_t kMaxFlowEdges = int64_t{1} << 20;
void AttentionFlow(TensorView<const float> maps, std::span<const int64_t> sources,
                   TensorView<float> output, ThreadPool* pool = nullptr);

// A^hops x, where A are the weights of each head: attention applied again and again, without the
// power of the matrix.
//
// Shapes   x and output [batch, num_heads, len, dim]; q_len == kv_len. hops >= 0; 0 copies x.
// Errors   as Attention(), and for hops, x and output, which may not overlap; kMemory may leave
//          output half written.
// Accuracy hops * kAttentionMaxError, relative to max |x|.
// Cost     hops * Attention(). Allocates a copy of x, and of k for grouped queries.
// Threads  as Attention().
void MultiHop(const StoredTensor& q, const StoredTensor& k, const AttentionOptions& options,
              int64_t hops, TensorView<const float> x, TensorView<float> output,
              ThreadPool* pool = nullptr);

// What Erasure() computes: everything that has a value.
struct ErasureOutputs {
  // [batch, num_heads, q_end - q_begin, kv_len]: |o - o_without_j|, Euclidean; 0 for keys that the
  // query does not see.
  TensorView<float> change{};
  // [batch, num_heads, kv_len, head_dim_v]: o_without_j itself, of the only query of the range.
  TensorView<float> without{};
};

// How the output of queries [q_begin, q_end) changes when one key is removed, for every key:
//
//   o_without_j = (o - p_j v_j) / (1 - p_j), zeros when j was the only key.
//
// Nothing is computed again; only for a key with more than half of the weight, where the quotient
// would cancel, the other keys are summed. Only for normalisers whose weights are shares of a sum:
// softmax, softmax1, kernel sums, average.
//
// Errors   as Attention(), but kMemory may leave results half written. Accuracy: 4 *
//          kAttentionMaxError * max |v| * sqrt(head_dim_v).
// Cost     attention of those queries, and 3 * head_dim_v FLOPs for each pair. Allocates O(q_len),
//          and a copy of v unless it is float32.
void Erasure(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
             const AttentionOptions& options, int64_t q_begin, int64_t q_end,
             const ErasureOutputs& outputs, ThreadPool* pool = nullptr);

// Which of the terms of an attribution count.
enum class AttributionTerms {
  kSigned,    // all: where the output would rise and where it would fall with the weight
  kPositive,  // those above 0, as in the source
};

// What Attribution() computes: everything that has a value.
struct AttributionOutputs {
  // [batch, num_heads, kv_len, 1]: sum over the queries of the range, for every key of the range;
  // keys outside get 0.
  TensorView<float> column_sums{};
  // [batch, num_heads, q_end - q_begin, k_end - k_begin]: the pairs of the range themselves.
  TensorView<float> pairs{};
};

// Gradient times attention: by how much a weight matters to a scalar L, of which d_out = dL / d
// output arrives,
//
//   a_ij = p_ij (d_out_i . v_j)     or max(0, that),
//
// the weight times the gradient of L with respect to it. Any normaliser: only the weights are
// needed, not their own gradient. The source takes the positive terms and their mean over heads.
//
// Shapes   d_out [batch, num_heads, q_len, head_dim_v], last dimension contiguous; q, k, v and
//          options as Attention().
// Empty row, hidden keys   exactly 0, whatever they hold; so has a weight of 0.
// Errors   Error(kShape | kRange | kOption | kUnsupported | kMemory), before anything is written,
//          but kMemory may leave results half written; relative_values, which are part of what a
//          key gives, are refused.
// Accuracy a pair: 2 * kAttentionMaxError * |d_out_i| |v_j|, in proportion to logits beyond 16;
//          column sums times the number of queries.
// Cost     as Analyze(), and 2 * head_dim_v FLOPs for each visible pair of the tiles that the range
//          touches. Allocates as Analyze() does, and a copy of v unless it is float32; never
//          O(q_len * kv_len) but what `pairs` is.
// Threads  as Attention(): same bits for any number of threads.
// Source   Chefer, Gur & Wolf 2021, arXiv:2103.15679, equation 5.
void Attribution(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                 TensorView<const float> d_out, const AttentionOptions& options,
                 AttributionTerms terms, const WeightsRange& range,
                 const AttributionOutputs& outputs, ThreadPool* pool = nullptr);

// How much each head adds to the output of its layer: the mean over batch and queries of
// |o_h W_h|, where W_h are the columns of w_o that head h meets. y = sum_h o_h W_h is a sum, so
// this is also by how much y changes when the head is ablated.
//
// Shapes   output [batch, num_heads, q_len, head_dim_v]; w_o [1, 1, embed_dim, num_heads *
//          head_dim_v] (PyTorch's out_proj.weight), or absent: the identity. Returns [num_heads].
// Errors   Error(kShape | kOption): a tensor whose last dimension is not contiguous, or a w_o that
//          does not fit.
// Accuracy computed in float64, rounded once.
// Cost     O(batch * num_heads * q_len * head_dim_v * (embed_dim or 1)), on one thread.
std::vector<float> HeadImportance(TensorView<const float> output, TensorView<const float> w_o);

// The num_kept most important heads (ties to the lower index): [num_heads] of 1 and 0. Seen as
// [1, num_heads, 1, 1] it is a `keep` of AttentionOptions: the others give zeros and cost nothing.
// Throws Error(kRange) for num_kept outside [0, num_heads] and for numbers that are not finite.
std::vector<uint8_t> PruneHeads(std::span<const float> importance, int64_t num_kept);

// The same for views of floats.
inline void Analyze(TensorView<const float> q, TensorView<const float> k,
                    const AttentionOptions& options, TensorView<const float> lse,
                    const AnalysisOutputs& outputs, ThreadPool* pool = nullptr) {
  Analyze(StoredTensor(q), StoredTensor(k), options, lse, outputs, pool);
}
inline void WeightsTile(TensorView<const float> q, TensorView<const float> k,
                        const AttentionOptions& options, TensorView<const float> lse,
                        const WeightsRange& range, TensorView<float> weights,
                        ThreadPool* pool = nullptr) {
  WeightsTile(StoredTensor(q), StoredTensor(k), options, lse, range, weights, pool);
}
inline void HeadSimilarity(TensorView<const float> q, TensorView<const float> k,
                           const AttentionOptions& options, const HeadSimilarityOutputs& outputs,
                           ThreadPool* pool = nullptr) {
  HeadSimilarity(StoredTensor(q), StoredTensor(k), options, outputs, pool);
}
inline void MultiHop(TensorView<const float> q, TensorView<const float> k,
                     const AttentionOptions& options, int64_t hops, TensorView<const float> x,
                     TensorView<float> output, ThreadPool* pool = nullptr) {
  MultiHop(StoredTensor(q), StoredTensor(k), options, hops, x, output, pool);
}
inline void Erasure(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                    const AttentionOptions& options, int64_t q_begin, int64_t q_end,
                    const ErasureOutputs& outputs, ThreadPool* pool = nullptr) {
  Erasure(StoredTensor(q), StoredTensor(k), StoredTensor(v), options, q_begin, q_end, outputs,
          pool);
}
inline void Attribution(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, TensorView<const float> d_out,
                        const AttentionOptions& options, AttributionTerms terms,
                        const WeightsRange& range, const AttributionOutputs& outputs,
                        ThreadPool* pool = nullptr) {
  Attribution(StoredTensor(q), StoredTensor(k), StoredTensor(v), d_out, options, terms, range,
              outputs, pool);
}

}  // namespace heed

#endif  // HEED_ANALYSIS_H_
