// Selective attention: a cheap look at the keys chooses some of them for each query, then exact
// attention runs over what was chosen.
//
// Choices are discontinuous, so their arithmetic is fixed: products of floats are summed in double,
// in the order of the dimensions, where each product is exact. The same choice comes out on every
// SIMD target, for any number of threads, and in the reference. Equal scores: the lower index
// first. NaN and +inf count as the largest finite score: what is broken is seen, not hidden.
#ifndef HEED_SELECTIVE_H_
#define HEED_SELECTIVE_H_

#include <cstdint>
#include <optional>
#include <span>

#include "heed/attention.h"

namespace heed {

struct BlockMixtureOptions {
  // Choices look at causal, query_offset and key_lengths (one per batch entry); other keep rules
  // are refused, for they would leave chosen blocks empty. Score::kDot only.
  AttentionOptions attention;
  int64_t key_block = 64;  // keys of a block, >= 1; the last one may be shorter
  int64_t top_blocks = 8;  // blocks that a query sees, its own included, >= 1
};

// Mixture of block attention: a query sees the blocks of keys whose mean it likes best, and always
// its own block, the one that holds its position.
//   gate[i, n] = q[i] . mean(k[j] : j in block n),
//   o[i] = attention over the own block and the best top_blocks - 1 others.
// With `causal`, only blocks before the own one are chosen from, and keys up to the query are seen.
// A query whose own block lies behind the keys, or behind key_lengths, sees the best top_blocks.
// Query heads choose for themselves, by the means of their KV head, rounded to float32.
//
//   key_block = 2, top_blocks = 2, causal:   x . . . . .
//                                            x x . . . .
//                                            x x x . . .
//                                            x x x x . .
//                                            . . x x x .
//                                            x x . . x x
//
// Shapes   as Attention().
// Outputs  output, lse, weights and scores of the attention over chosen blocks.
// Empty row  as Attention().
// Errors   as Attention(), and for the options above.
// Accuracy kAttentionMaxError.
// Cost     2 * q_len * kv_len / key_block * head_dim FLOPs per head to choose, then as Attention()
//          with the chosen blocks as a keep pattern: panels that some of a few neighbouring queries
//          chose. Allocates the means, 4 bytes for each chosen block, and what Attention() does.
// Threads  as Attention().
// Source   Lu et al. 2025, MoBA: Mixture of Block Attention, arXiv:2502.13189, section 2.2.
void BlockMixtureAttention(TensorView<const float> q, TensorView<const float> k,
                           TensorView<const float> v, const BlockMixtureOptions& options,
                           const AttentionOutputs& outputs, ThreadPool* pool = nullptr);

struct ReformerOptions {
  std::optional<double> scale;  // absent = 1 / sqrt(head_dim); finite
  bool causal = false;          // a token sees those before it
  // Tokens at or beyond the length do not exist: never read, their rows are empty. Empty = len,
  // else [batch] values in [0, len].
  std::span<const int32_t> key_lengths;
  int64_t hash_rounds = 4;  // 1 to 1024
  // 1, or even up to 2^20. 0 = as many as there are chunks, made even; 1 when there is one chunk.
  int64_t hash_buckets = 0;
  int64_t hash_chunk = 64;  // tokens of a chunk, >= 1
  uint64_t seed = 0;        // of the rotations
  // [1, hash_rounds, head_dim, hash_buckets / 2]; absent = normal numbers by the seed: SplitMix64
  // from that state and Box-Muller, rounds by dimensions by columns, the same for all heads.
  TensorView<const float> rotations;
};

// Reformer: tokens attend to those that fall into the same bucket of a random hash.
//   k[i] = q[i] / |q[i]|                                       keys are the queries
//   x = q[i] R,  bucket = argmax [x; -x]                       of equal ones the first
// Tokens are sorted by bucket, then by position, and cut into chunks of hash_chunk. In a round a
// token sees those of its own bucket in its own chunk and the one before. Rounds hash anew; a token
// sees what any of them brings together, once: a pair counts in the first round that has it, where
// the paper subtracts the logarithm of how many have it, which comes to the same. A token sees
// itself only when it sees nothing else.
//
// Shapes   q [batch, num_heads, len, head_dim], v [batch, num_kv_heads, len, head_dim_v]; num_heads
//          is a multiple of num_kv_heads. Any length: nothing is padded.
// Outputs  output, lse and weights of the softmax over what is seen; scores are refused. The share
//          of the full softmax that hashing caught is exp(lse - lse of exact attention).
// Empty row  beyond the length: output 0, weights 0, lse -inf.
// Errors   Error(kShape | kRange | kOption | kUnsupported | kMemory), before anything is written,
//          but kMemory may leave results half written.
// Accuracy 2 kAttentionMaxError: rounds are merged.
// Cost     a round: 2 * len * head_dim * hash_buckets / 2 FLOPs per head to hash, and at most 2 *
//          len * 2 hash_chunk * (head_dim + head_dim_v) to attend. Allocates two tensors like q,
//          three like the output, and 20 bytes for each token, head and round; never O(len^2)
//          unless weights are asked for.
// Threads  `pool` or the default pool. Same inputs give the same bits for any number of threads,
//          and the same buckets on every machine.
// Source   Kitaev et al. 2020, Reformer: The Efficient Transformer, arXiv:2001.04451, section 2.
void ReformerAttention(TensorView<const float> q, TensorView<const float> v,
                       const ReformerOptions& options, const AttentionOutputs& outputs,
                       ThreadPool* pool = nullptr);

struct NativeSparseOptions {
  std::optional<double> scale;  // absent = 1 / sqrt(head_dim); finite
  QueryOffset query_offset;     // needed when q_len and kv_len differ
  // Keys at or beyond the length are never read. Empty = kv_len, else [batch] values.
  std::span<const int32_t> key_lengths;
  int64_t compress_block = 32;   // keys of a compressed key, >= 1
  int64_t compress_stride = 16;  // keys between the beginnings of two, >= 1
  int64_t key_block = 64;        // keys of a block that is chosen, >= 1
  int64_t top_blocks = 8;        // blocks that a query sees, those below included (paper: 16)
  int64_t first_blocks = 1;      // first blocks that it always sees, >= 0
  int64_t local_blocks = 2;      // last blocks up to its own that it always sees, >= 1
  int64_t window_len = 512;      // last keys of the window, the own one included, >= 1
  // What keys and values are multiplied by before they are summed to a compressed one,
  // [1, 1, 1 or num_kv_heads, compress_block]; absent = the mean.
  TensorView<const float> compress_k_weight, compress_v_weight;
  // What the compressed branch and the window read in place of k and v, shaped as these, last
  // dimension contiguous; each absent one = k or v. Compressed keys choose the blocks of k and v.
  TensorView<const float> compress_k, compress_v, window_k, window_v;

  int64_t KeyLength(int64_t b, int64_t kv_len) const {
    return key_lengths.empty() ? kv_len : key_lengths[static_cast<size_t>(b)];
  }
};

// Native sparse attention: causal, three views of the same tokens, summed with gates.
//   compressed  attention to sums of compress_block rows of compress_k and compress_v, as far as
//               they lie wholly at or before the query
//   selected    attention to the best blocks of k and v; the score of a block is the weight that
//               the compressed branch gives to its tokens, summed over the heads that share the KV
//               head
//   window      attention to the last window_len rows of window_k and window_v
//   o[i] = gates[i][0] compressed + gates[i][1] selected + gates[i][2] window
//
// Shapes   as Attention(); branch_gates [batch, num_heads, q_len, 3], factors as they are (the
//          paper has sigmoids). A gate of exactly 0 leaves its branch out, whatever that holds; the
//          compressed keys choose blocks all the same.
// Empty row  a branch without keys counts 0.
// Errors   as Attention(), and for the options above.
// Accuracy kAttentionMaxError times the sum of the absolute gates, relative to the largest value of
//          the three branches.
// Choices  weights of the compressed branch are computed in double from products rounded to
//          float32, and rounded to float32 before they are summed.
// Cost     2 * q_len * kv_len / compress_stride * head_dim FLOPs per head to choose, and three
//          calls of Attention(). Allocates two tensors like the output, compressed keys and values,
//          4 bytes for each chosen block, and what Attention() does.
// Threads  as Attention().
// Source   Yuan et al. 2025, Native Sparse Attention, arXiv:2502.11089, section 3.
void NativeSparseAttention(TensorView<const float> q, TensorView<const float> k,
                           TensorView<const float> v, TensorView<const float> branch_gates,
                           const NativeSparseOptions& options, TensorView<float> output,
                           ThreadPool* pool = nullptr);

// What the indexer sees of queries and keys; last dimensions are contiguous.
struct IndexTensors {
  TensorView<const float> q;        // [batch, index_heads, q_len, index_dim]
  TensorView<const float> k;        // [batch, 1, kv_len, index_dim]
  TensorView<const float> weights;  // [batch, index_heads, q_len, 1]
};

struct IndexedOptions {
  // Choices look at causal, query_offset and key_lengths; other keep rules are refused.
  // Score::kDot only.
  AttentionOptions attention;
  int64_t top_k = 8;  // keys that a query sees, >= 1 (DeepSeek-V3.2: 2048)
};

// DeepSeek sparse attention: a lightning indexer scores all keys with a few small heads, and every
// query attends to the best ones, the same for all its heads.
//   score[t, s] = sum over index heads of weights[t, h] * relu(index_q[t, h] . index_k[s])
// Products are rounded to float32 before the sum over heads.
//
// Shapes   as Attention(), and IndexTensors. What the published model multiplies the weights by
//          (1 / sqrt(index_heads) and the scale) is part of them.
// Outputs  output, lse, weights and scores of the attention over chosen keys.
// Empty row  as Attention().
// Errors   as Attention(), and for the options above.
// Accuracy kAttentionMaxError.
// Cost     2 * q_len * kv_len * index_heads * index_dim FLOPs to choose, where there are more than
//          top_k keys, in double: half the speed of float32. Then as Attention() with the chosen
//          keys as a keep pattern: panels that a few neighbouring queries chose. Allocates the
//          indexer's keys, 4 bytes for each chosen key, a few rows of kv_len per thread, and what
//          Attention() does.
// Threads  as Attention().
// Source   DeepSeek-AI 2025, DeepSeek-V3.2-Exp: Boosting Long-Context Efficiency with DeepSeek
//          Sparse Attention, equations 1 and 2.
void IndexedAttention(TensorView<const float> q, TensorView<const float> k,
                      TensorView<const float> v, const IndexTensors& index,
                      const IndexedOptions& options, const AttentionOutputs& outputs,
                      ThreadPool* pool = nullptr);

struct RoutingOptions {
  std::optional<double> scale;  // absent = 1 / sqrt(head_dim); finite
  bool causal = false;
  QueryOffset query_offset;  // needed with causal when q_len and kv_len differ
  // Keys at or beyond the length are never read. Empty = kv_len, else [batch] values.
  std::span<const int32_t> key_lengths;
  int64_t num_clusters = 16;  // 1 to 2^20
  // Queries and keys of a cluster; 0 = kv_len / num_clusters, rounded up.
  int64_t cluster_tokens = 0;
  uint64_t seed = 0;  // of the centroids
  // [1, num_heads, num_clusters, head_dim]; absent = normal numbers by the seed, in this order, as
  // ReformerOptions::rotations.
  TensorView<const float> centroids;
};

// Routing attention: tokens are gathered into clusters, and attend within them.
//   score[c, t] = centroid[c] . x[t] / |x[t]|, of queries and of keys; 0 where x[t] is 0
// Every cluster takes the cluster_tokens best queries and as many keys, and attends within itself
// with q and k as they are. A query averages what the clusters give that took it and showed it a
// key; without one its row is empty. Centroids are trained elsewhere: k-means moves them towards
// the tokens they took. With `causal` keys after a query are hidden, but choices look at all
// tokens, later ones too, as in the paper.
//
// Shapes   as Attention(). Query heads cluster for themselves.
// Outputs  output, and weights: the means of those of the clusters. lse and scores are refused.
// Empty row  output 0, weights 0.
// Errors   as Attention(), and for the options above.
// Accuracy 2 kAttentionMaxError.
// Cost     2 * (q_len + kv_len) * num_clusters * head_dim FLOPs per head to choose, and
//          num_clusters times attention of cluster_tokens queries and keys. Allocates tensors of
//          all clusters, num_heads * num_clusters * cluster_tokens * (2 head_dim + 2 head_dim_v)
//          floats, and the longer side once per thread.
// Threads  as Attention().
// Source   Roy et al. 2020, Efficient Content-Based Sparse Attention with Routing Transformers,
//          arXiv:2003.05997, section 4.1.
void RoutingAttention(TensorView<const float> q, TensorView<const float> k,
                      TensorView<const float> v, const RoutingOptions& options,
                      const AttentionOutputs& outputs, ThreadPool* pool = nullptr);

struct SinkhornOptions {
  std::optional<double> scale;  // absent = 1 / sqrt(head_dim); finite
  bool causal = false;
  // Tokens at or beyond the length do not exist: never read, their rows are empty. Empty = len,
  // else [batch] values in [0, len].
  std::span<const int32_t> key_lengths;
  int64_t key_block = 64;          // tokens of a block, >= 1; the last one may be shorter
  int64_t sort_iterations = 8;     // of balancing, 1 to 1000
  double sort_temperature = 0.75;  // > 0 and finite: small ones sort sharply
  // What the matrix is balanced from, [batch, num_heads, blocks, blocks]: row n says which blocks
  // of keys should come to block n; -inf never. Absent = scale * mean query of block n . mean key
  // of block m, or causal its first query.
  TensorView<const float> sort_logits;
};

// Sinkhorn attention: blocks of keys and values are sorted by a soft permutation, and every block
// of queries attends to the block that came to its place and to its own.
//   R = exp(logits / sort_temperature), rows and columns divided by their sums, `sort_iterations`
//       times,
//   sorted[n] = sum_m R[n, m] block[m],  o = attention over [sorted[n]; block[n]].
// A last block that is not whole is not sorted anywhere: R has a row for it, but no column. With
// `causal` only blocks before n come to block n, sums are over these, and those of a column over
// rows up to n: nothing looks ahead, if sort_logits do not.
//
// Shapes   as Attention() with q_len = kv_len. Query heads sort for themselves.
// Empty row  beyond the length: output 0. Where nothing may come to a place, its own block remains.
// Errors   as Attention(), and for the options above.
// Accuracy 4 kAttentionMaxError times the largest row sum of R, which balancing brings near 1 or
//          below; `causal` rows sum to at most 1 after the columns were divided.
// Cost     2 * len * blocks * (head_dim + head_dim_v) FLOPs per head to sort, and attention over
//          2 key_block keys. Allocates blocks^2 doubles per head, tensors like q and output, and
//          keys and values twice as long, per query head.
// Threads  as Attention().
// Source   Tay et al. 2020, Sparse Sinkhorn Attention, arXiv:2002.11296, section 3; sorted and own
//          blocks share one softmax, as in published code.
void SinkhornAttention(TensorView<const float> q, TensorView<const float> k,
                       TensorView<const float> v, const SinkhornOptions& options,
                       TensorView<float> output, ThreadPool* pool = nullptr);

}  // namespace heed

#endif  // HEED_SELECTIVE_H_
