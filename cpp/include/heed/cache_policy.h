// What a query sees when it is decoded over a cache that does not keep, or does not read, the whole
// past. Here the policies run over whole sequences; KvCache (heed/cache.h) does the same token by
// token.
#ifndef HEED_CACHE_POLICY_H_
#define HEED_CACHE_POLICY_H_

#include <cstdint>
#include <optional>
#include <span>

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
  int64_t top_pages = 64;      // that a query sees, its own included, >= 1
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

struct HeavyHitterOptions {
  int64_t recent_tokens = 1024;  // that a query sees, its own included, >= 1
  int64_t heavy_tokens = 1024;   // of the older ones, >= 1
  std::optional<double> scale;   // on the scores; absent = 1 / sqrt(head_dim)
  std::optional<double> softcap;
  std::span<const float> sinks;            // num_heads logits in the denominator, or none
  std::span<const int32_t> key_lengths{};  // [batch] values in [0, kv_len], or none
};

// Heavy hitters: decoding over a cache that keeps the last tokens and, in each KV head, of the
// older ones those that have received the largest weights so far. What it has forgotten never
// returns.
//
// Shapes   as Attention(); q_len equals kv_len: tokens come one after the other. All extents are at
//          least 1.
// Outputs  output, lse and weights [batch, num_heads, q_len, kv_len], 0 for what was forgotten.
//          With recent_tokens + heavy_tokens of at least kv_len it is causal attention. Queries at
//          or beyond key_lengths are tokens that never came: empty rows. The weights of a KV head
//          are those of its query heads together; of equal sums the later token is forgotten. Sums
//          are float64, of float32 weights: near ties may fall differently on another machine.
// Empty row, errors, accuracy  as Attention(), for the same choices; kMemory may leave results half
//          written.
// Cost     of Attention() over recent_tokens + heavy_tokens keys a query, scores twice; one query
//          at a time.
// Source   Zhang et al. 2023, H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large
//          Language Models, arXiv:2306.14048, section 4.
void HeavyHitterAttention(TensorView<const float> q, TensorView<const float> k,
                          TensorView<const float> v, const HeavyHitterOptions& options,
                          const AttentionOutputs& outputs, ThreadPool* pool = nullptr);

}  // namespace heed

#endif  // HEED_CACHE_POLICY_H_
