// What the exact loop works on: the caller's arguments after validation, with every default filled
// in. Plain data, no SIMD, shared by all targets.
#ifndef HEED_SRC_EXACT_PROBLEM_H_
#define HEED_SRC_EXACT_PROBLEM_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "heed/attention.h"
#include "src/parallel/dry_run.h"

namespace heed {

// Keys [begin, end).
struct KeyRange {
  int64_t begin;
  int64_t end;
};

// The blocks of tokens in which a cache keeps the keys, or the values, of each batch entry.
struct CachedRows {
  DType dtype = DType::kFloat32;
  int64_t block_size = 1;     // tokens of a block
  int64_t row_bytes = 0;      // one token of one KV head
  int64_t offset = 0;         // in a block: rows [num_kv_heads, block_size]
  int64_t scale_offset = -1;  // in a block: what rows are multiplied by, floats; -1 = nothing
  std::vector<std::vector<const char*>> blocks;  // of each batch entry; nullptr where evicted

  const char* Block(int64_t b, int64_t j) const {
    return blocks[static_cast<size_t>(b)][static_cast<size_t>(j / block_size)];
  }
  // Tokens of j's block from j on.
  int64_t RunLength(int64_t j) const { return block_size - j % block_size; }
  // nullptr when the token was evicted.
  const void* Row(int64_t b, int64_t h, int64_t j) const {
    const char* block = Block(b, j);
    if (block == nullptr) return nullptr;
    return block + offset + (h * block_size + j % block_size) * row_bytes;
  }
  // What row j is multiplied by, and the rows after it in its block. Not for evicted tokens;
  // nullptr where the type has no scales.
  const float* Scales(int64_t b, int64_t h, int64_t j) const {
    if (scale_offset < 0) return nullptr;
    return reinterpret_cast<const float*>(Block(b, j) + scale_offset) + h * block_size +
           j % block_size;
  }
};

class CellKeep;

struct AttentionProblem {
  StoredTensor q;
  StoredTensor k, v;  // only shapes when the rows are cached
  const CachedRows* cached_k = nullptr;
  const CachedRows* cached_v = nullptr;
  int64_t sink_keys = 0;                   // with a window: the first keys, visible from everywhere
  std::shared_ptr<const CellKeep> chosen;  // what a selective mechanism leaves of the keys
  AttentionOptions options;                // bias and keep have stride 0 where they broadcast
  AttentionOutputs outputs;
  StoredOutput output;  // outputs.output or outputs.stored_output

  int64_t batch = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t group = 1;  // query heads per KV head
  int64_t q_len = 0;
  int64_t kv_len = 0;
  int64_t head_dim = 0;
  int64_t head_dim_v = 0;
  int64_t head_dim_k = 0;  // head_dim, except for scores that join two widths
  int64_t hidden_dim = 0;  // kAdditive
  int64_t relative_table_rows = 0;

  bool tensors_on_device = false;  // what tensors hold cannot be checked on the host
  bool finishes_rows = false;      // the row buffer is used even where the normaliser streams

  float sigmoid_bias = 0;
  std::vector<float> head_scale;  // kCosine: the factor of each query head
  float scale = 1;                // with what FoldWidth takes out of a single width
  std::vector<float>
      inverse_width;              // empty when nothing is left to divide by, else head_dim values
  std::vector<int64_t> position;  // position of query 0, per batch entry
  // Where every query stands and what it may see, when sequences are packed (varlen.h); else empty.
  ScratchVector<int64_t> packed_positions;
  ScratchVector<KeyRange> packed_keys;

  int64_t Position(int64_t b, int64_t query) const {
    if (!packed_positions.empty()) return packed_positions[static_cast<size_t>(query)];
    return query + position[static_cast<size_t>(b)];
  }

  // How many keys the row's length allows.
  int64_t KeyLength(int64_t b, int64_t i) const {
    if (options.key_lengths.empty()) return kv_len;
    const bool per_query = options.key_lengths.size() != static_cast<size_t>(batch);
    return options.key_lengths[static_cast<size_t>(per_query ? b * q_len + i : b)];
  }
};

// Does the normaliser have a softmax denominator? It is what lse is the log of, and sinks join.
bool HasLse(const AttentionOptions& options);

// Checks p and the extents, each of which is one word of a counter.
void CheckDropout(const Dropout& dropout, const Extents& pairs);

// Checks what belongs to the normaliser and fills its defaults in.
void CheckNormalize(AttentionProblem& p, bool wants_lse);
// The largest distance between a query and a key that the call can meet.
inline int64_t FarthestDistance(const AttentionProblem& p) {
  int64_t farthest = 0;
  const auto reach = [&](int64_t position) {
    farthest = std::max({farthest, std::abs(position), std::abs(p.kv_len - 1 - position)});
  };
  for (const int64_t position : p.position) {
    reach(position);
    reach(position + p.q_len - 1);
  }
  for (const int64_t position : p.packed_positions) reach(position);
  return farthest;
}

// Do the options change what a dot product is?
inline bool HasRelativeScore(const AttentionOptions& o) {
  return o.relative_keys.has_value() || o.relative_queries.has_value() ||
         o.content_bias.has_value();
}

// Checks the inputs and options and fills the defaults in, leaving `outputs` absent. Throws Error;
// allocates O(batch + head_dim).
AttentionProblem ValidateAttentionInputs(const StoredTensor& q, const StoredTensor& k,
                                         const StoredTensor& v, const AttentionOptions& options,
                                         bool wants_lse);

// The same with outputs, which are checked too.
AttentionProblem ValidateAttention(const StoredTensor& q, const StoredTensor& k,
                                   const StoredTensor& v, const AttentionOptions& options,
                                   const AttentionOutputs& outputs);

// Checks and fills in a problem whose q, k, v, cached rows and options are set.
void CompleteInputs(AttentionProblem& problem, bool wants_lse);
void CompleteOutputs(AttentionProblem& problem, const AttentionOutputs& outputs);

// Runs a validated problem. Throws Error(kMemory).
void RunProblem(const AttentionProblem& problem, ThreadPool* pool);
// The part of it that decides which of the pairs [batch, num_heads, q_len, kv_len] are visible.
AttentionProblem ValidateKeepRules(const Extents& pairs, const AttentionOptions& options);

}  // namespace heed

#endif  // HEED_SRC_EXACT_PROBLEM_H_
