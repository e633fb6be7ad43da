// What the exact loop works on: the caller's arguments after validation, with every default filled
// in. Plain data, no SIMD, shared by all targets.
#ifndef HEED_SRC_EXACT_PROBLEM_H_
#define HEED_SRC_EXACT_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "heed/attention.h"

namespace heed {

// Keys [begin, end).
struct KeyRange {
  int64_t begin;
  int64_t end;
};

struct AttentionProblem {
  StoredTensor q, k, v;
  AttentionOptions options;  // bias and keep have stride 0 where they broadcast
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

  float scale = 1;  // with what FoldWidth takes out of a single width
  std::vector<float>
      inverse_width;              // empty when nothing is left to divide by, else head_dim values
  std::vector<int64_t> position;  // position of query 0, per batch entry

  // How many keys the row's length allows.
  int64_t KeyLength(int64_t b, int64_t i) const {
    if (options.key_lengths.empty()) return kv_len;
    const bool per_query = options.key_lengths.size() != static_cast<size_t>(batch);
    return options.key_lengths[static_cast<size_t>(per_query ? b * q_len + i : b)];
  }
};

// Checks the inputs and options and fills the defaults in, leaving `outputs` absent. Throws Error;
// allocates O(batch + head_dim).
AttentionProblem ValidateAttentionInputs(const StoredTensor& q, const StoredTensor& k,
                                         const StoredTensor& v, const AttentionOptions& options,
                                         bool wants_lse);

// The same with outputs, which are checked too.
AttentionProblem ValidateAttention(const StoredTensor& q, const StoredTensor& k,
                                   const StoredTensor& v, const AttentionOptions& options,
                                   const AttentionOutputs& outputs);

}  // namespace heed

#endif  // HEED_SRC_EXACT_PROBLEM_H_
