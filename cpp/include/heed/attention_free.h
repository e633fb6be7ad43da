// Attention-free transformer: weights per channel from keys and positions, without dot products.
#ifndef HEED_ATTENTION_FREE_H_
#define HEED_ATTENTION_FREE_H_

#include <cstdint>
#include <optional>

#include "heed/attention.h"

namespace heed {

// Largest error against the float64 reference, relative to max |v| over the keys a row sees, for
// |k + bias| up to 16, and in proportion beyond. Docs and tests read this constant.
inline constexpr double kAttentionFreeMaxError = 4e-6;

struct AttentionFreeOptions {
  // `bias` is the paper's w, learned for pairs of positions; absent is AFT-simple. The keep rules
  // (causal, window, query_offset, key_lengths, keep, keep_mod) say which keys exist. Whatever else
  // acts on scores is refused: there is no score.
  AttentionOptions attention;
  // AFT-local: the bias counts only for keys nearer than this to the query's position, |i +
  // query_offset - j| < local_window; elsewhere it is 0, which is not the same as hidden. >= 1.
  std::optional<int64_t> local_window;
};

// Every channel is a weighted mean of its own, with exponential weights of keys and positions:
//   o[i, c] = sigmoid(q[i, c]) * sum_j exp(k[j, c] + bias[i, j]) v[j, c]
//                              / sum_j exp(k[j, c] + bias[i, j]).
// The largest exponent of a channel is subtracted: large keys cannot overflow.
//
// Shapes   q [batch, num_heads, q_len, head_dim], k and v [batch, num_kv_heads, kv_len, head_dim].
//          Heads are only a name for groups of channels, unless the bias differs between them.
// output   [batch, num_heads, q_len, head_dim], any strides with a contiguous last dimension.
// Empty row  output 0. A key whose exponent is -inf in a channel counts as not kept there.
// Errors   as Attention(), before anything is written.
// Accuracy kAttentionFreeMaxError.
// Cost     O(kv_len + q_len) per channel without bias and cell rules, also causal; else
//          O(q_len * kv_len) per channel. Allocates a few rows per thread.
// Threads  `pool` or the default pool. Same inputs give the same bits for any number of threads.
// Source   Zhai et al. 2021, An Attention Free Transformer, arXiv:2105.14103, equations 2 and 3.
void AttentionFree(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                   const AttentionFreeOptions& options, TensorView<float> output,
                   ThreadPool* pool = nullptr);

}  // namespace heed

#endif  // HEED_ATTENTION_FREE_H_
