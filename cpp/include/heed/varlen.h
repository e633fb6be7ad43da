// Variable lengths: attention of many sequences packed one after the other, without padding.
#ifndef HEED_VARLEN_H_
#define HEED_VARLEN_H_

#include <cstdint>
#include <span>

#include "heed/attention.h"
#include "heed/error.h"
#include "heed/tensor.h"
#include "heed/thread_pool.h"

namespace heed {

// Exact attention within each of n sequences.
//
// Shapes   q [1, num_heads, total_q, head_dim], k [1, num_kv_heads, total_kv, head_dim],
//          v [1, num_kv_heads, total_kv, head_dim_v]; a packed [total, heads, dim] buffer is
//          ContiguousBlhd(data, 1, total, heads, dim). Sequence s has the queries
//          from cu_seqlens_q[s] up to cu_seqlens_q[s + 1], and the keys from cu_seqlens_k[s] up to
//          cu_seqlens_k[s + 1], the last of both excluded: n + 1 numbers each, from 0 on, never
//          decreasing (FlashAttention's cu_seqlens).
// Options  as of Attention(), each within its sequence: query_offset At(t) puts query 0 of every
//          sequence at its key t, End() the last query at the last key, PerBatch() has one number
//          a sequence; needed when positions matter and some sequence has unequal lengths.
//          An absent sigmoid_bias is -log(keys of the sequence). User functions are shown the
//          pairs of one sequence at a time: PairTile::batch is its number, queries, keys and
//          positions count from its first token. Dropout draws by the place in the packed tensors.
//          key_lengths, prefix_lengths, documents, keep, patterns and bias are refused.
// Empty row  Queries behind the last offset, and sequences without keys: output 0, lse -inf.
// Errors   Error(kShape | kRange | kOption | kUnsupported | kMemory), before anything is written.
// Accuracy kAttentionMaxError, against heed/reference.h on each sequence alone.
// Cost     the sum over sequences of q_len * kv_len, in tiles: tiles that no query sees are
//          skipped, so that short sequences share tiles. Allocates O(total_q) beyond Attention().
// Threads  all sequences run at once; same bits for any number of threads.
void AttentionVarlen(const StoredTensor& q, const StoredTensor& k, const StoredTensor& v,
                     std::span<const int32_t> cu_seqlens_q, std::span<const int32_t> cu_seqlens_k,
                     const AttentionOptions& options, const AttentionOutputs& outputs,
                     ThreadPool* pool = nullptr);
void AttentionVarlen(TensorView<const float> q, TensorView<const float> k,
                     TensorView<const float> v, std::span<const int32_t> cu_seqlens_q,
                     std::span<const int32_t> cu_seqlens_k, const AttentionOptions& options,
                     const AttentionOutputs& outputs, ThreadPool* pool = nullptr);

}  // namespace heed

#endif  // HEED_VARLEN_H_
