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

}  // namespace heed

#endif  // HEED_SELECTIVE_H_
