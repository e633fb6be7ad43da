// Backward of Linformer: the exact loop's over the projected keys K' = E k and values V' = F v,
// then
//   dk = E^T dK',  dE = dK' k^T,  dv = F^T dV',  dF = dV' v^T
#include <algorithm>

#include "heed/linear.h"
#include "src/low_rank/backward.h"
#include "src/low_rank/problem.h"

namespace heed {
namespace {

// to[b] = projection^T rows[b], within the length of each entry.
void ProjectBack(const TensorView<const float>& projection, const TensorView<const float>& rows,
                 const AttentionProblem& p, const TensorView<float>& to, ThreadPool& pool) {
  if (!to.has_value()) return;
  const OwnedTensor turned = Transposed(projection, pool);
  for (int64_t b = 0; b < to.shape[0]; ++b) {
    const int64_t length = p.KeyLength(b, 0);
    Bmm(RowsOf(turned.view(), 0, length), EntryOf(rows, b), RowsOf(EntryOf(to, b), 0, length),
        &pool);
    ClearRows(to, b, length);
  }
}

// to += rows tokens^T, over the batch and the heads that share a projection.
void AddToProjection(const TensorView<const float>& rows, const TensorView<const float>& tokens,
                     const AttentionProblem& p, const TensorView<float>& to, ThreadPool& pool) {
  if (!to.has_value()) return;
  const int64_t heads = rows.shape[1];
  const OwnedTensor products({1, heads, rows.shape[2], p.kv_len});
  for (int64_t b = 0; b < rows.shape[0]; ++b) {
    const int64_t length = p.KeyLength(b, 0);
    TensorView<float> here = products.view();
    here.shape[3] = length;
    Bmm(EntryOf(rows, b), TransposedView(RowsOf(EntryOf(tokens, b), 0, length)), here, &pool);
    ForEachRow({1, to.shape[1], to.shape[2], 1}, pool, [&](int64_t, int64_t h, int64_t n) {
      const int64_t first = to.shape[1] == 1 ? 0 : h, end = to.shape[1] == 1 ? heads : h + 1;
      for (int64_t from = first; from < end; ++from) {
        for (int64_t j = 0; j < length; ++j) to(0, h, n, j) += here(0, from, n, j);
      }
    });
  }
}

void Clear(const TensorView<float>& to, ThreadPool& pool) {
  if (!to.has_value()) return;
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t n) {
    for (int64_t j = 0; j < to.shape[3]; ++j) to(b, h, n, j) = 0;
  });
}

}  // namespace

void LinformerBackward(const TensorView<const float>& q, const TensorView<const float>& k,
                       const TensorView<const float>& v, const LinformerOptions& options,
                       const LowRankArriving& arriving, const LowRankGradients& to,
                       ThreadPool& pool) {
  const LinformerProblem l = ValidateLinformer(q, k, v, options);
  AttentionOptions over_tokens;
  over_tokens.scale = options.scale;
  over_tokens.key_lengths = options.key_lengths;
  const AttentionProblem p = ValidateLowRank(q, k, v, over_tokens);
  const OwnedTensor keys(l.k), values(l.v), d_keys(l.k), d_values(l.v);
  ProjectTokens(l.key_projection, k, options.key_lengths, keys.view(), &pool);
  ProjectTokens(l.value_projection, v, options.key_lengths, values.view(), &pool);
  AttentionGradients gradients;
  gradients.d_lse = arriving.d_lse;
  gradients.d_q = to.d_q;
  gradients.d_k = d_keys.view();
  gradients.d_v = d_values.view();
  AttentionBackward(q, keys.view(), values.view(), arriving.out, arriving.lse, arriving.d_out,
                    l.over_projected, gradients, &pool);
  ProjectBack(l.key_projection, d_keys.view(), p, to.d_k, pool);
  ProjectBack(l.value_projection, d_values.view(), p, to.d_v, pool);
  Clear(to.d_key_projection, pool);
  Clear(to.d_value_projection, pool);
  AddToProjection(d_keys.view(), k, p, to.d_key_projection, pool);
  const bool own = options.value_projection.has_value();
  AddToProjection(d_values.view(), v, p, own ? to.d_value_projection : to.d_key_projection, pool);
}

}  // namespace heed
