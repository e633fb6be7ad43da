// The low-rank family: keys and values, or the matrix of weights, are made small before queries
// meet them, so that time and memory grow linearly with the length, and those of memory compression
// with its square over the compression. None is causal where a few rows stand for the whole
// sequence: those rows contain later tokens.
#ifndef HEED_LOW_RANK_H_
#define HEED_LOW_RANK_H_

#include <cstdint>
#include <optional>
#include <span>

#include "heed/attention.h"

namespace heed {

// Largest error of an output of the low-rank family against the float64 reference, relative to the
// largest sum of absolute values that a value is made of (for plain values the largest |v|), for
// logits of which the absolute values of all terms sum up to 16. Docs and tests read it.
inline constexpr double kLowRankMaxError = 6e-6;

struct LinformerOptions {
  // E and F of the paper: rows of weights for the tokens, [1, 1 or num_kv_heads, num_projected, at
  // least kv_len]. Their first kv_len columns count, so that what was trained for long sequences
  // serves short ones. F (value_projection) absent = E.
  TensorView<const float> key_projection;
  TensorView<const float> value_projection;
  std::optional<double> scale;  // on the scores; absent = 1 / sqrt(head_dim)
  // Tokens at or beyond the length are never read: they are left out of the projection. Empty =
  // kv_len, else [batch] values in [0, kv_len].
  std::span<const int32_t> key_lengths;
};

// Linformer: the sequence of keys and of values is projected to num_projected rows, to which
// queries attend.
//   o = softmax(scale q (E k)^T) (F v)
//
// Shapes   as Attention(). With the identity as E it is Attention().
// Outputs  `lse` [batch, num_heads, q_len, 1] and `weights` [batch, num_heads, q_len,
//          num_projected] are those over the projected keys; scores are refused. Neither causal nor
//          masks of pairs exist: every projected key holds all tokens.
// Empty row  (length 0) output 0, weights 0, lse -inf.
// Errors   as Attention(), and for the projections.
// Accuracy kLowRankMaxError.
// Cost     2 kv_len num_projected (head_dim + head_dim_v) FLOPs per KV head, and Attention() with
//          num_projected keys. Allocates the projected keys and values.
// Threads  as Attention().
// Source   Wang et al. 2020, Linformer, arXiv:2006.04768, equation 7.
void Linformer(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
               const LinformerOptions& options, const AttentionOutputs& outputs,
               ThreadPool* pool = nullptr);

struct EfficientOptions {
  // Tokens at or beyond the length are never read. Empty = kv_len, else [batch] values in
  // [0, kv_len].
  std::span<const int32_t> key_lengths;
};

// Efficient attention: a softmax over the features of each query, and one over the tokens for each
// feature of the keys. Keys and values then are one matrix per head, a value for each feature.
//   o = softmax_features(q) (softmax_tokens(k)^T v)
//
// Shapes   as Attention(). There is no scale. With head_dim 1 it is Attention() with queries and
//          scale of 1; a query whose feature c is far above its others gets the attention of the
//          c-th unit vector.
// Outputs  `weights` [batch, num_heads, q_len, kv_len] are the products of both: rows sum to 1.
//          lse and scores are refused: there are two normalisations. Not causal: the matrix holds
//          all tokens.
// Empty row  (length 0) output 0, weights 0. A key of -inf is not kept in that feature.
// Errors   as Attention(), but kMemory may leave results half written.
// Accuracy kLowRankMaxError, whatever the size of q and k.
// Cost     2 head_dim head_dim_v (num_heads q_len + num_kv_heads kv_len) FLOPs, beside
//          exponentials. Allocates the matrix and blocks of q and k, 1024 and 4096 tokens long;
//          copies of both and [q_len, kv_len] only for weights.
// Threads  as Attention().
// Source   Shen et al. 2018, Efficient Attention, arXiv:1812.01243, section 3.2.
void EfficientAttention(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const EfficientOptions& options,
                        const AttentionOutputs& outputs, ThreadPool* pool = nullptr);

struct NystromOptions {
  // Means of so many segments of the tokens stand for all, in [1, kv_len]; absent = 64, or kv_len
  // if that is less. Segment n of a sequence of `len` tokens begins at token n len / num_landmarks,
  // rounded down: no length needs padding.
  std::optional<int64_t> num_landmarks;
  int64_t iterations = 6;       // of the pseudo-inverse, in [1, 100]
  std::optional<double> scale;  // on the scores; absent = 1 / sqrt(head_dim)
  // Tokens at or beyond the length are never read but as queries, and are in no landmark. A
  // sequence with at most num_landmarks tokens has one landmark a token: exact attention. Empty =
  // kv_len, else [batch] values in [0, kv_len].
  std::span<const int32_t> key_lengths;
  // A convolution of each dimension of the values along the tokens, added to the output:
  // [1, 1, 1 or num_heads, kernel_len], kernel_len odd, its middle at the query's own token, zeros
  // around the sequence. Absent = none.
  TensorView<const float> depthwise_conv;
};

struct NystromOutputs {
  TensorView<float> output{};   // [batch, num_heads, q_len, head_dim_v]
  TensorView<float> weights{};  // [batch, num_heads, q_len, kv_len], without the convolution
  // [batch, num_heads, 1, 1]: how far the iterations are from the pseudo-inverse Z of the
  // landmarks' weights A, |A Z A - A| / |A| (Frobenius): 0 is exact. Large values ask for more
  // iterations or fewer landmarks; those that grow with the iterations are rounding, which happens
  // when landmarks are nearly alike.
  TensorView<float> residual{};
};

// Nystrom attention: the softmax matrix of a sequence with itself by way of landmarks Q and K,
// which are means of its segments.
//   o = softmax(scale q K^T) pinv(softmax(scale Q K^T)) softmax(scale Q k^T) v  (+ convolution)
// with the paper's iteration for the pseudo-inverse. As many landmarks as tokens are Attention().
//
// Shapes   as Attention(); q_len equals kv_len: landmarks pair queries and keys of the same tokens.
// Outputs  Rows of weights sum to 1 when the iterations have converged; they may be negative. Not
//          causal: landmarks hold tokens that come later.
// Empty row  (length 0) output 0, weights 0.
// Errors   as Attention(), and for the fields above; kMemory may leave results half written.
// Accuracy kLowRankMaxError times the square of the largest row sum of |pinv|, by which errors of
//          landmarks grow.
// Cost     of Attention() with q_len queries and num_landmarks keys, of the reverse, and
//          8 iterations num_landmarks^3 FLOPs a head. Allocates landmarks, their values and six
//          matrices [num_landmarks, num_landmarks] a head; never [q_len, kv_len] but for weights.
// Threads  as Attention().
// Source   Xiong et al. 2021, Nystromformer, arXiv:2102.03902, sections 3.2 and 3.3.
void NystromAttention(TensorView<const float> q, TensorView<const float> k,
                      TensorView<const float> v, const NystromOptions& options,
                      const NystromOutputs& outputs, ThreadPool* pool = nullptr);

struct MemoryCompressedOptions {
  // Tokens of a block, kernel and stride of the convolutions, >= 1. Absent = the kernel of the
  // convolutions, or 3 as in the paper.
  std::optional<int64_t> compression;
  // Weights [1 or num_kv_heads, out, in, compression] as PyTorch's Conv1d has them, contiguous but
  // for the first extent; out and in are head_dim, or head_dim_v for values. Absent = the mean of
  // the block's tokens.
  TensorView<const float> key_conv, value_conv;
  // Added to the convolved blocks: head_dim (head_dim_v) values, or as many for each KV head. Empty
  // = none; need the convolution.
  std::span<const float> key_conv_bias, value_conv_bias;
  std::optional<double> scale;  // on the scores; absent = 1 / sqrt(head_dim)
  // num_heads logits inside the denominator. 0 is a null key with a value of zeros, for queries
  // that see no block yet.
  std::span<const float> sinks;
  // A query sees the blocks that are complete with its own position, or before it.
  bool causal = false;
  QueryOffset query_offset;
  // Tokens at or beyond the length are never read. Empty = kv_len, else [batch] values in
  // [0, kv_len].
  std::span<const int32_t> key_lengths;
};

// Memory-compressed attention: a strided convolution turns each block of `compression` tokens into
// one key and one value, to which queries attend.
//
//   compression 3, causal, 7 tokens:   query 0  . . .
//                                            1  . . .
//                                            2  x . .
//                                            ...
//                                            5  x x .
//                                            6  x x .   the last block is not complete
//
// Shapes   as Attention(). With compression 1 and no convolution it is Attention().
// The last block  may have fewer tokens: its mean is that of the tokens it has, convolutions see
//          zeros beyond. With causal nobody sees it, so that later tokens change no earlier row.
// Outputs  `lse` and `weights` [batch, num_heads, q_len, ceil(kv_len / compression)] are those over
//          blocks; scores are refused.
// Empty row  (no block) output 0, weights 0, lse -inf.
// Errors   as Attention(), and for the fields above.
// Accuracy kLowRankMaxError.
// Cost     of Attention() with kv_len / compression keys, and 2 kv_len (head_dim^2 + head_dim_v^2)
//          FLOPs per KV head for convolutions. Allocates the blocks, and copies of convolved
//          tokens.
// Threads  as Attention().
// Source   Liu et al. 2018, Generating Wikipedia by Summarizing Long Sequences, arXiv:1801.10198,
//          section 4.2.4. That a query sees complete blocks only, and null keys, is the rule of the
//          implementation lucidrains/memory-compressed-attention.
void MemoryCompressedAttention(TensorView<const float> q, TensorView<const float> k,
                               TensorView<const float> v, const MemoryCompressedOptions& options,
                               const AttentionOutputs& outputs, ThreadPool* pool = nullptr);

}  // namespace heed

#endif  // HEED_LOW_RANK_H_
