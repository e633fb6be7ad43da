// Backward of efficient attention, o = s M with s the shares of features and M = t^T v, where t is
// softmax over the tokens of each feature of the keys, attention with scores as a bias:
//   ds = do M^T,  dM = sum s^T do,  dq = s (ds - sum s ds)
#include <algorithm>
#include <vector>

#include "heed/linear.h"
#include "heed/rows.h"
#include "src/low_rank/backward.h"
#include "src/low_rank/problem.h"
#include "src/rows/dot.h"

namespace heed {
namespace {

// Features as rows, [batch, heads, head_dim, len]; tokens beyond their length are 0.
OwnedTensor Features(const TensorView<const float>& keys, const AttentionProblem& p,
                     ThreadPool& pool) {
  const OwnedTensor shape({p.batch, p.num_kv_heads, p.head_dim, p.kv_len});
  OwnedTensor features({p.batch, p.num_kv_heads, p.head_dim, p.kv_len});
  ForEachRow(shape.view().shape, pool, [&](int64_t b, int64_t h, int64_t d) {
    for (int64_t j = 0; j < p.kv_len; ++j) {
      features.view()(b, h, d, j) = j < p.KeyLength(b, 0) ? keys(b, h, j, d) : 0.0f;
    }
  });
  return features;
}

// ds = do M^T, with the state M of the KV head that a group of heads shares.
void ShareGradients(const TensorView<const float>& d_out, const TensorView<const float>& state,
                    const AttentionProblem& p, const TensorView<float>& d_shares,
                    ThreadPool& pool) {
  // Groups as heads, KV heads as batch entries.
  const auto grouped = [&](auto view, int64_t b, int64_t group) {
    view.data += b * view.strides[0];
    view.shape = {p.num_kv_heads, group, view.shape[2], view.shape[3]};
    view.strides[0] = group * view.strides[1];
    return view;
  };
  for (int64_t b = 0; b < p.batch; ++b) {
    Bmm(grouped(d_out, b, p.group), TransposedView(grouped(state, b, 1)),
        grouped(d_shares, b, p.group), &pool);
  }
}

}  // namespace

void EfficientBackward(const TensorView<const float>& q, const TensorView<const float>& k,
                       const TensorView<const float>& v, const EfficientOptions& options,
                       const LowRankArriving& arriving, const LowRankGradients& to,
                       ThreadPool& pool) {
  const AttentionProblem p = ValidateLowRank(q, k, v, ValidateEfficient(q, k, v, options));
  const OwnedTensor scores = Features(k, p, pool), d_scores(scores.view().shape);
  const OwnedTensor state({p.batch, p.num_kv_heads, p.head_dim, p.head_dim_v});
  const OwnedTensor d_state(state.view().shape);
  const OwnedTensor lse({p.batch, p.num_kv_heads, p.head_dim, 1});
  AttentionOptions over_tokens;
  over_tokens.scale = 1;
  over_tokens.key_lengths = options.key_lengths;
  over_tokens.bias = scores.view();
  const TensorView<const float> no_queries = Planned({p.batch, p.num_kv_heads, p.head_dim, 0});
  const TensorView<const float> no_keys = Planned({p.batch, p.num_kv_heads, p.kv_len, 0});
  Attention(no_queries, no_keys, v, over_tokens, {.output = state.view(), .lse = lse.view()},
            &pool);

  const OwnedTensor shares(q.shape), d_shares(q.shape);
  Softmax(q, shares.view(), 3, &pool);
  const OwnedTensor turned = Transposed(shares.view(), pool);
  const OwnedTensor products({p.batch, p.num_heads, p.head_dim, p.head_dim_v});
  Bmm(turned.view(), arriving.d_out, products.view(), &pool);
  ForEachRow(d_state.view().shape, pool, [&](int64_t b, int64_t h, int64_t d) {
    for (int64_t e = 0; e < p.head_dim_v; ++e) {
      float sum = 0;
      for (int64_t n = 0; n < p.group; ++n) sum += products.view()(b, h * p.group + n, d, e);
      d_state.view()(b, h, d, e) = sum;
    }
  });
  AttentionGradients gradients;
  gradients.d_v = to.d_v;
  gradients.d_bias = d_scores.view();
  AttentionBackward(no_queries, no_keys, v, state.view(), lse.view(), d_state.view(), over_tokens,
                    gradients, &pool);
  if (to.d_k.has_value()) {
    ForEachRow(to.d_k.shape, pool, [&](int64_t b, int64_t h, int64_t j) {
      for (int64_t d = 0; d < p.head_dim; ++d) to.d_k(b, h, j, d) = d_scores.view()(b, h, d, j);
    });
  }
  if (!to.d_q.has_value()) return;
  ShareGradients(arriving.d_out, state.view(), p, d_shares.view(), pool);
  ForEachRow(to.d_q.shape, pool, [&](int64_t b, int64_t h, int64_t i) {
    const float* const share = RowOf(shares.view(), b, h, i);
    const float* const d_share = RowOf(d_shares.view(), b, h, i);
    float* const d_q = RowOf(to.d_q, b, h, i);
    const double along = DotRows(share, d_share, p.head_dim);
    for (int64_t d = 0; d < p.head_dim; ++d) {
      d_q[d] = static_cast<float>(double{share[d]} * (double{d_share[d]} - along));
    }
  });
}

}  // namespace heed
