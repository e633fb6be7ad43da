// Caches: keys and values of the tokens so far, and attention of new queries over them.
#ifndef HEED_CACHE_H_
#define HEED_CACHE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "heed/attention.h"
#include "heed/dtype.h"
#include "heed/error.h"
#include "heed/tensor.h"
#include "heed/thread_pool.h"

namespace heed {

// How far a cached number may lie from what was appended: relative to the number itself for
// float16, bfloat16 (attention.h) and float8, relative to the largest number of its row (a token of
// one head) for int8. float8 numbers below 2^-6 / 448 of that largest one have an absolute error of
// 2^-10 / 448 of it.
inline constexpr double kInt8Rounding = 0.5 / 127;
inline constexpr double kFloat8Rounding = 0x1p-4;

struct KvCacheOptions {
  int64_t batch = 1;  // sequences, each of its own length
  int64_t num_kv_heads = 1;
  int64_t head_dim = 0;
  int64_t head_dim_v = 0;  // 0 = head_dim

  // The most tokens of a sequence; 0 = no limit.
  int64_t capacity = 0;
  // Tokens of a block, the unit of memory, sharing and eviction. 0 = one block of `capacity` tokens
  // (a contiguous cache); without a capacity as many as fill 2 MiB, a power of two from 64 to 1024;
  // with recent_tokens 64.
  int64_t block_size = 0;

  // float32, float16, bfloat16: rounded to nearest even. int8, float8_e4m3: each row (a token of
  // one head) times its own float32 scale; a row with a number that is not finite becomes NaN.
  DType dtype = DType::kFloat32;

  // The last tokens that a query sees, its own included; 0 = all. Older blocks are freed.
  int64_t recent_tokens = 0;
  // With recent_tokens: the first tokens, which all later queries see (StreamingLLM).
  int64_t sink_tokens = 0;

  // With recent_tokens: so many of the older tokens stay as well, in each KV head its own, those
  // that have received the largest weights of all queries so far (H2O). A query sees at most
  // sink_tokens + recent_tokens + heavy_tokens tokens, its own included, or those and the tokens
  // that were appended with it: the cache forgets when more is appended. Decode what is appended,
  // once: weights count as often as they are computed. Positions are lost, so are Rewind and ALiBi.
  // Source: Zhang et al. 2023, H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large
  // Language Models, arXiv:2306.14048, section 4.
  int64_t heavy_tokens = 0;

  // For DecodeOptions::top_pages: the smallest and the largest key of each page of so many tokens
  // are kept as well, 8 * head_dim bytes a page and head. block_size is a multiple of it (by
  // default made one). 0 = none. Not with recent_tokens, which bound what is read by themselves.
  int64_t page_size = 0;
};

// What a cache holds. Blocks that forks share are counted in full by each of them.
struct KvCacheMemory {
  int64_t bytes = 0;         // of all blocks that the cache refers to
  int64_t shared_bytes = 0;  // of those that another sequence or cache refers to as well
  int64_t blocks = 0;
};

// Keys and values of `batch` sequences, stored in blocks. Copies nothing it does not have to: Fork
// shares blocks, which are copied when one side writes to them.
//
// Not thread-safe: one call at a time on one cache; forks are independent of each other.
class KvCache {
 public:
  // Throws Error(kRange | kDType | kShape | kOption | kUnsupported | kMemory). Allocates no blocks.
  explicit KvCache(const KvCacheOptions& options);
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;

  const KvCacheOptions& options() const;

  // Tokens of a sequence so far, evicted ones included: the position of its next token.
  int64_t length(int64_t sequence) const;
  // The length of the longest sequence.
  int64_t max_length() const;
  KvCacheMemory memory() const;

  // Appends tokens: k [batch, num_kv_heads, len, head_dim], v [batch, num_kv_heads, len,
  // head_dim_v], of any storage type. `lengths` says how many of the `len` tokens each sequence
  // takes, the first ones; empty = all. Throws Error, the cache unchanged, when shapes do not fit,
  // a capacity would be exceeded (kRange) or memory is short (kMemory).
  void Append(const StoredTensor& k, const StoredTensor& v, std::span<const int32_t> lengths = {});
  void Append(TensorView<const float> k, TensorView<const float> v,
              std::span<const int32_t> lengths = {});

  // Forgets the last tokens of a sequence, so that `length` remain. Throws Error(kRange) when there
  // are fewer, or when tokens that the next query would see were evicted.
  void Rewind(int64_t sequence, int64_t length);

  // A cache whose sequence n begins as a copy of sequence `sequences[n]` of this one; the same
  // sequence may appear several times (a shared prefix). Shares all blocks: O(blocks).
  KvCache Fork(std::span<const int64_t> sequences) const;
  KvCache Fork() const;

  // The tokens of a sequence that a KV head holds, ascending.
  std::vector<int64_t> tokens(int64_t sequence, int64_t head) const;

  // Copies tokens [begin, end) of a sequence out, as they are stored: k [1, num_kv_heads,
  // end - begin, head_dim], v likewise. Throws Error(kRange) for evicted or missing tokens.
  void Read(int64_t sequence, int64_t begin, int64_t end, TensorView<float> k,
            TensorView<float> v) const;

  struct State;  // defined in src/cache
  const State& state() const { return *state_; }

 private:
  explicit KvCache(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Options of attention over a cache. The cache supplies positions, lengths and what stays visible;
// causal is always on: every query sees the tokens up to its own.
struct DecodeOptions {
  // Factor on the score; absent = 1 / sqrt(head_dim).
  std::optional<double> scale;
  // cap * tanh(s / cap); > 0 and finite; absent = off.
  std::optional<double> softcap;
  // num_heads values, or empty: one logit per query head in the denominator.
  std::span<const float> sinks;
  // num_heads values, or empty: distances are those between tokens of the whole sequence.
  std::span<const float> alibi_slopes;
  // How many of the q_len queries each sequence has, the first ones; the others are empty rows.
  // Empty = all. Query i of sequence b stands at length(b) - query_lengths[b] + i: append first,
  // then decode.
  std::span<const int32_t> query_lengths;
  // Quest (heed/cache_policy.h): each query head sees its own page and the top_pages - 1 others in
  // which it can score most, as the bounds of a page tell. >= 1; needs a cache with page_size.
  // Absent = all. Equals QuestAttention() over the stored tokens.
  std::optional<int64_t> top_pages;
};

// Attention of the last tokens of each sequence over its cache: q [batch, num_heads, q_len,
// head_dim], the output [batch, num_heads, q_len, head_dim_v], lse optional; weights and scores are
// refused (they have no [q_len, kv_len] of their own in a ragged batch).
//
// Equals Attention() over the stored tokens, causal, with query_offset, key_lengths and window
// filled in, bit for bit; and so does not depend on block size. Token by token or many at once
// differ within the accuracy bound when a sequence has more than 1024 tokens: few queries cut the
// keys into splits of 1024 for the threads, and merge the parts exactly. Sequences that share
// blocks (forks) read them from memory once. Where the processor adds up products of bytes, more
// than 1024 tokens of int8 are summed in fixed point: other bits than those of Attention().
//
// Accuracy kAttentionMaxError against the reference on what the cache holds; storage adds its own
//          rounding to k and v, and fixed point at most 0.4 % of what that may be.
// Cost     of Attention() over the visible tokens, with recent_tokens a bounded number; with
//          top_pages 4 * head_dim FLOPs a page and query head, and the keys and values of panels
//          that some query head of a KV head chose. Allocates what Attention() does, and one
//          pointer a block.
// Errors   Error(kShape | kOption | kRange | kUnsupported | kMemory), before anything is written,
//          but kMemory of a cache of heavy hitters may leave results half written.
void Decode(const StoredTensor& q, const KvCache& cache, const DecodeOptions& options,
            const AttentionOutputs& outputs, ThreadPool* pool = nullptr);
void Decode(TensorView<const float> q, const KvCache& cache, const DecodeOptions& options,
            const AttentionOutputs& outputs, ThreadPool* pool = nullptr);

}  // namespace heed

#endif  // HEED_CACHE_H_
