// Merging: attention over all keys from attention over parts of them.
#ifndef HEED_MERGE_H_
#define HEED_MERGE_H_

#include <span>

#include "heed/tensor.h"
#include "heed/thread_pool.h"

namespace heed {

// Attention of the same queries over some of the keys, as Attention() returns it.
struct PartialAttention {
  TensorView<const float> output;  // [batch, num_heads, q_len, head_dim_v]
  TensorView<const float> lse;     // [batch, num_heads, q_len, 1]
};

// Joins partial results over disjoint sets of keys into the result over all of them:
//
//   lse = log sum_n e^lse_n,  output = sum_n e^(lse_n - lse) output_n.
//
// Any number of states, at least one, in any order and any grouping (Merge of Merges): the same
// within rounding. Computed in double and rounded once.
//
// Empty    a state whose lse is -inf has seen nothing; its output is not looked at, so merging with
//          it changes no bit. Rows that are empty everywhere give output 0 and lse -inf.
// NaN      an lse that is NaN or +inf makes its row NaN; NaN in an output of a state that is not
//          empty reaches that row.
// Sinks    belong to one of the states only: each would add its own to the denominator.
// Outputs  of the shapes of the states; lse may be absent. Each may be the same view as that of one
//          state (merging in place).
// Errors   Error(kShape | kOption | kMemory), before anything is written.
// Accuracy that of the states, and one rounding to float32: parts of an Attention() that are merged
//          stay within kAttentionMaxError of the reference for all keys.
// Cost     one pass over the states; allocates nothing of their size.
// Threads  `pool` or the default pool; same bits for any number of threads.
// Source   Milakov & Gimelshein 2018, arXiv:1805.02867, section 3.1; Dao et al. 2023,
//          "Flash-Decoding".
void Merge(std::span<const PartialAttention> states, TensorView<float> output,
           TensorView<float> lse, ThreadPool* pool = nullptr);

}  // namespace heed

#endif  // HEED_MERGE_H_
