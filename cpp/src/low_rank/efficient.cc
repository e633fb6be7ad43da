// Efficient attention. The softmax over the tokens of one feature of the keys is attention of one
// query whose scores are that feature: as a bias without a dot product, it runs in the tiled loop.
#include <algorithm>
#include <array>
#include <vector>

#include "heed/linear.h"
#include "heed/merge.h"
#include "heed/rows.h"
#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/low_rank/problem.h"
#include "src/memory_errors.h"
#include "src/message.h"

namespace heed {
namespace {

// Tokens that are in the caches at once: copies of all would be read from memory again.
constexpr int64_t kKeyBlock = 4096;
constexpr int64_t kQueryBlock = 1024;

// Features as rows: [batch, heads, head_dim, len]; tokens at or beyond their length are 0.
void Transpose(const TensorView<const float>& rows, const std::vector<int32_t>& lengths,
               const TensorView<float>& to, ThreadPool& pool) {
  constexpr int64_t kTokens = 16;  // a cache line of the result
  const auto [batch, heads, len, width] = rows.shape;
  ForEachRow({batch, heads, (len + kTokens - 1) / kTokens, 1}, pool,
             [&, len = len, width = width](int64_t b, int64_t h, int64_t block) {
               const int64_t length = lengths[static_cast<size_t>(b)];
               for (int64_t d = 0; d < width; ++d) {
                 for (int64_t j = block * kTokens; j < std::min(len, (block + 1) * kTokens); ++j) {
                   to(b, h, d, j) = j < length ? rows(b, h, j, d) : 0.0f;
                 }
               }
             });
}

// Products of the heads of a group with the matrix that they share.
void BmmOfGroups(const TensorView<const float>& a, const TensorView<const float>& b,
                 const TensorView<float>& out, int64_t group, ThreadPool* pool) {
  for (int64_t n = 0; n < group; ++n) {
    Bmm(MembersOf(a, n, group), b, MembersOf(out, n, group), pool);
  }
}

// What the features of the keys make of the values, and how they weigh the tokens: the state of one
// query for each feature. Lives in memory of its own.
struct FeatureState {
  OwnedTensor output;  // [batch, num_kv_heads, head_dim, head_dim_v]
  OwnedTensor lse;     // [batch, num_kv_heads, head_dim, 1]

  explicit FeatureState(const AttentionProblem& p)
      : output({p.batch, p.num_kv_heads, p.head_dim, p.head_dim_v}),
        lse({p.batch, p.num_kv_heads, p.head_dim, 1}) {}
  PartialAttention partial() const { return {output.view(), lse.view()}; }
};

// Of tokens [first, first + scores.shape[3]). `scores` is memory for their keys.
void AttendToTokens(const AttentionProblem& p, const TensorView<const float>& k,
                    const TensorView<const float>& v, int64_t first,
                    const TensorView<float>& scores, const FeatureState& state,
                    const TensorView<float>& weights, ThreadPool* pool) {
  const int64_t count = scores.shape[3];
  std::vector<int32_t> lengths;
  for (int64_t b = 0; b < p.batch; ++b) {
    lengths.push_back(
        static_cast<int32_t>(std::clamp<int64_t>(p.KeyLength(b, 0) - first, 0, count)));
  }
  Transpose(RowsOf(k, first, count), lengths, scores, PoolOrDefault(pool));
  AttentionOptions options;
  options.scale = 1;
  options.key_lengths = lengths;
  options.bias = scores;
  Attention(Planned({p.batch, p.num_kv_heads, p.head_dim, 0}),
            Planned({p.batch, p.num_kv_heads, count, 0}), RowsOf(v, first, count), options,
            {.output = state.output.view(), .lse = state.lse.view(), .weights = weights}, pool);
}

// Blocks of tokens one after the other, joined by their sums.
void AttendToAllTokens(const AttentionProblem& p, const TensorView<const float>& k,
                       const TensorView<const float>& v, const FeatureState& state,
                       ThreadPool* pool) {
  const int64_t block = std::min(p.kv_len, kKeyBlock);
  const OwnedTensor scores({p.batch, p.num_kv_heads, p.head_dim, block});
  AttendToTokens(p, k, v, 0, scores.view(), state, {}, pool);
  if (block == p.kv_len) return;
  const FeatureState next(p);
  for (int64_t first = block; first < p.kv_len; first += block) {
    const int64_t count = std::min(block, p.kv_len - first);
    const TensorView<float> here =
        Contiguous(scores.view().data, p.batch, p.num_kv_heads, p.head_dim, count);
    AttendToTokens(p, k, v, first, here, next, {}, pool);
    Merge(std::array{state.partial(), next.partial()}, state.output.view(), state.lse.view(), pool);
  }
}

}  // namespace

AttentionOptions ValidateEfficient(const TensorView<const float>& q,
                                   const TensorView<const float>& k,
                                   const TensorView<const float>& v, const EfficientOptions& o) {
  AttentionOptions over_tokens;
  over_tokens.key_lengths = o.key_lengths;
  over_tokens.scale = 1;
  ValidateLowRank(q, k, v, over_tokens);
  return over_tokens;
}

void EfficientAttention(TensorView<const float> q, TensorView<const float> k,
                        TensorView<const float> v, const EfficientOptions& options,
                        const AttentionOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("efficient attention", [&] {
    AttentionOptions over_tokens = ValidateEfficient(q, k, v, options);
    CheckNoScores(outputs);
    if (outputs.lse.has_value()) {
      Fail(ErrorCode::kUnsupported, "lse: efficient attention normalises twice");
    }
    RefuseTiles(outputs, "efficient attention");
    const AttentionProblem p = ValidateComposed(q, k, v, over_tokens, outputs);
    const FeatureState state(p);
    if (outputs.weights.has_value()) {
      const OwnedTensor scores({p.batch, p.num_kv_heads, p.head_dim, p.kv_len});
      const OwnedTensor weights(scores.view().shape);
      const OwnedTensor shares(q.shape);
      AttendToTokens(p, k, v, 0, scores.view(), state, weights.view(), pool);
      Softmax(q, shares.view(), 3, pool);
      BmmOfGroups(shares.view(), weights.view(), outputs.weights, p.group, pool);
    } else {
      AttendToAllTokens(p, k, v, state, pool);
    }
    const int64_t block = std::min(p.q_len, kQueryBlock);
    const OwnedTensor shares({p.batch, p.num_heads, block, p.head_dim});
    for (int64_t first = 0; first < p.q_len; first += block) {
      const int64_t count = std::min(block, p.q_len - first);
      const TensorView<float> here = RowsOf(shares.view(), 0, count);
      Softmax(RowsOf(q, first, count), here, 3, pool);
      BmmOfGroups(here, state.output.view(), RowsOf(outputs.output, first, count), p.group, pool);
    }
  });
}

}  // namespace heed
