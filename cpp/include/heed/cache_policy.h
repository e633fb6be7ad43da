// What queries see that are decoded over a cache which does not keep, or does not read, all of the
// past. Here the policies run over whole sequences; KvCache (heed/cache.h) does the same token by
// token.
#ifndef HEED_CACHE_POLICY_H_
#define HEED_CACHE_POLICY_H_

#include <cstdint>

#include "heed/attention.h"

namespace heed {

struct StreamingOptions {
  AttentionOptions attention;    // its causal is always on; other keep rules are refused
  int64_t recent_tokens = 1024;  // that a query sees, its own included, >= 1
  int64_t sink_tokens = 4;       // the first ones, which all later queries see, >= 0
};

// A sliding window, and the first tokens: the sinks that softmax gives weight to when nothing else
// deserves it. A cache of recent_tokens + sink_tokens tokens decodes sequences of any length.
//
//   recent 2, sinks 1:   x . . . .
//                        x x . . .
//                        x x x . .
//                        x . x x .
//                        x . . x x
//
// Shapes   as Attention(), and so are outputs, empty rows, errors, accuracy and threads.
// Cost     of Attention() over recent_tokens + sink_tokens keys a query.
// Source   Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks,
//          arXiv:2309.17453, section 3.2. Positions are those in the whole sequence, not in the
//          cache.
void StreamingAttention(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const StreamingOptions& options,
                        const AttentionOutputs& outputs, ThreadPool* pool = nullptr);

struct QuestOptions {
  AttentionOptions attention;  // its causal is always on; other keep rules are refused
  int64_t page_size = 16;      // tokens of a page, >= 1
  int64_t pages = 64;          // that a query sees, its own included, >= 1
};

// Query-aware sparsity: the tokens stand in pages, of which the smallest and the largest key of
// each dimension are known. They bound what a query can score in a page; it sees the pages with the
// largest bounds, and always its own, up to its own token.
//   bound[i, n] = sum_d max(q[i, d] min(k[j, d]), q[i, d] max(k[j, d])), j in page n
//
// Query heads choose for themselves, by the pages of their KV head. The arithmetic of choices is
// that of heed/selective.h: products summed in double, those with maxima first.
//
// Shapes   as Attention(), and so are outputs, empty rows, errors, accuracy and threads.
// Cost     4 head_dim FLOPs a page and query to choose, then as Attention() with the chosen pages
//          as a keep pattern.
// Source   Tang et al. 2024, Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference,
//          arXiv:2406.10774, section 3.3.
void QuestAttention(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                    const QuestOptions& options, const AttentionOutputs& outputs,
                    ThreadPool* pool = nullptr);

}  // namespace heed

#endif  // HEED_CACHE_POLICY_H_
