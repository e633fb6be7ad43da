// Efficient attention. The softmax over the tokens of one feature of the keys is attention of one
// query whose scores are that feature: as a bias without a dot product, it runs in the tiled loop.
#include <algorithm>

#include "heed/linear.h"
#include "heed/rows.h"
#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/low_rank/problem.h"
#include "src/message.h"

namespace heed {
namespace {

// Features as rows: [batch, heads, head_dim, len].
void Transpose(const TensorView<const float>& rows, const AttentionProblem& p,
               const TensorView<float>& to, ThreadPool& pool) {
  constexpr int64_t kTokens = 16;  // a cache line of the result
  const auto [batch, heads, len, width] = rows.shape;
  ForEachRow({batch, heads, (len + kTokens - 1) / kTokens, 1}, pool,
             [&, len = len, width = width](int64_t b, int64_t h, int64_t block) {
               const int64_t length = p.KeyLength(b, 0);
               for (int64_t d = 0; d < width; ++d) {
                 for (int64_t j = block * kTokens; j < std::min(len, (block + 1) * kTokens); ++j) {
                   to(b, h, d, j) = j < length ? rows(b, h, j, d) : 0.0f;
                 }
               }
             });
}

// Every `step`-th head from `first` on.
template <class T>
TensorView<T> HeadsOf(TensorView<T> view, int64_t first, int64_t step) {
  view.data += first * view.strides[1];
  view.shape[1] /= step;
  view.strides[1] *= step;
  return view;
}

// Products of the heads of a group with the matrix that they share.
void BmmOfGroups(const TensorView<const float>& a, const TensorView<const float>& b,
                 const TensorView<float>& out, int64_t group, ThreadPool* pool) {
  for (int64_t n = 0; n < group; ++n) {
    Bmm(HeadsOf(a, n, group), b, HeadsOf(out, n, group), pool);
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
  AttentionOptions over_tokens = ValidateEfficient(q, k, v, options);
  CheckLowRankOutputs(outputs, {});
  if (outputs.lse.has_value()) {
    Fail(ErrorCode::kUnsupported, "lse: efficient attention normalises twice");
  }
  const AttentionProblem p = ValidateComposed(q, k, v, over_tokens, outputs);
  const int64_t features = p.head_dim;
  const OwnedTensor scores({p.batch, p.num_kv_heads, features, p.kv_len});
  const OwnedTensor context({p.batch, p.num_kv_heads, features, p.head_dim_v});
  const OwnedTensor weights =
      outputs.weights.has_value() ? OwnedTensor(scores.view().shape) : OwnedTensor();
  const OwnedTensor shares(q.shape);

  Transpose(k, p, scores.view(), PoolOrDefault(pool));
  over_tokens.bias = scores.view();
  AttentionOutputs of_features;
  of_features.output = context.view();
  of_features.weights = weights.view();
  Attention(Planned({p.batch, p.num_kv_heads, features, 0}),
            Planned({p.batch, p.num_kv_heads, p.kv_len, 0}), v, over_tokens, of_features, pool);
  Softmax(q, shares.view(), 3, pool);
  BmmOfGroups(shares.view(), context.view(), outputs.output, p.group, pool);
  if (!outputs.weights.has_value()) return;
  BmmOfGroups(shares.view(), weights.view(), outputs.weights, p.group, pool);
}

}  // namespace heed
