// One problem of exact attention: seeded inputs, options, and both ways to run it.
#ifndef HEED_TESTS_ATTENTION_CASE_H_
#define HEED_TESTS_ATTENTION_CASE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "buffer.h"
#include "heed/attention.h"
#include "heed/request.h"
#include "random.h"

namespace heed::testing {

struct Sizes {
  int64_t batch = 1;
  int64_t num_heads = 2;
  int64_t num_kv_heads = 2;
  int64_t q_len = 65;
  int64_t kv_len = 65;
  int64_t head_dim = 64;
  int64_t head_dim_v = 64;
};

// A float tensor beside q, k and v: how requests name it, and how many extents they see.
struct NamedBuffer {
  Buffer<float> buffer;
  int rank = 4;
};

// Lists of blocks and edges, as heed/keep.h has them.
struct KeepLists {
  int64_t q_block = 64;
  int64_t kv_block = 64;
  Buffer<uint8_t> block_keep;  // [1, 1 | num_heads, q_blocks, kv_blocks]; no value = absent
  std::vector<int32_t> block_indptr, block_indices;  // block_indptr empty = absent
  std::optional<std::vector<int32_t>> pairs;
};

// Owns every tensor. Tests change members freely between making and running a case.
struct AttentionCase {
  Sizes sizes;
  Buffer<float> q, k, v;
  Buffer<float> bias;    // no value = absent
  Buffer<uint8_t> keep;  // no value = absent
  std::vector<float> alibi_slopes, sinks, width;
  std::map<std::string, NamedBuffer> tensors;  // what only some scores and modifiers read
  std::vector<int32_t> key_lengths;            // [batch] or [batch, q_len]
  std::vector<int32_t> prefix_lengths;
  std::vector<int32_t> query_documents, key_documents;  // [len] or [batch, len]
  std::vector<int32_t> global_tokens;                   // of the Longformer pattern in `scalars`
  KeepLists lists;
  std::string score_mod;  // expressions; empty = absent
  std::string prob_mod;
  AttentionOptions scalars;  // the options that own no memory; at most one pattern
  Layout output_layout = Layout::kDense;

  // All options: `scalars` with views of the members above.
  AttentionOptions options() const;

  // Adds a tensor of these extents ~ N(0, size^2).
  void AddTensor(const std::string& name, std::vector<int64_t> shape, Random& random,
                 double size = 1, Layout layout = Layout::kDense);

  // The same problem by name, for the oracle and for heed::Run: scaled_dot_product or
  // kernel_regression where they say it all, else attention. Points into this case.
  Request request() const;

  // The position of query i among the keys.
  int64_t Position(int64_t b, int64_t i) const;

  // Sizes and options in one line, for failure messages.
  std::string Describe() const;
};

// q, k, v ~ N(0, 1), gaps full of NaN.
AttentionCase MakeCase(const Sizes& sizes, uint64_t seed = 1, Layout layout = Layout::kDense);

// A bias ~ N(0, 1) of these extents; each cell is -inf with the given probability.
Buffer<float> MakeBias(const Extents& shape, Random& random, double hidden = 0,
                       Layout layout = Layout::kDense);

// A keep tensor of these extents; each cell is nonzero with the given probability. Gaps are zero.
Buffer<uint8_t> MakeKeep(const Extents& shape, Random& random, double kept,
                         Layout layout = Layout::kDense);

// A table of contextual positions, one for all heads or one a head, ~ N(0, 1 / head_dim).
void AddCopeTable(AttentionCase& c, int64_t heads, int64_t num_positions, Random& random);

// Makes every score an exact float: q, k and bias in quarters, a scale of 2^n, few dimensions. Then
// equal scores are equal in float64 too, and larger ones larger.
void MakeScoresExact(AttentionCase& c);

// The word of params.inc.
const char* NormalizeName(Normalize normalize);

// Which optional results to ask for.
struct Asked {
  bool lse = true;
  bool weights = false;
  std::optional<ScoreStage> scores = std::nullopt;
};

struct Results {
  Buffer<float> output;   // [batch, num_heads, q_len, head_dim_v]
  Buffer<float> lse;      // [batch, num_heads, q_len, 1]
  Buffer<float> weights;  // [batch, num_heads, q_len, kv_len]
  Buffer<float> scores;   // [batch, num_heads, q_len, kv_len]
};

// Runs heed::Attention into buffers full of NaN; checks that their gaps stay as they were.
Results RunAttention(const AttentionCase& c, const Asked& asked = {}, ThreadPool* pool = nullptr);

// Whether the normaliser has a denominator whose logarithm can be returned.
bool HasLse(const AttentionCase& c);

// Bits of all elements: for comparisons where a NaN equals itself and -0 differs from 0.
std::vector<uint32_t> Bits(const Buffer<float>& buffer);

}  // namespace heed::testing

#endif  // HEED_TESTS_ATTENTION_CASE_H_
