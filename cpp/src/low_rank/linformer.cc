// Linformer: two matrix products along the sequence, then the exact loop over what they leave.
#include "heed/linear.h"
#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/low_rank/problem.h"
#include "src/memory_errors.h"
#include "src/message.h"

namespace heed {
namespace {

// The first kv_len columns of a projection.
TensorView<const float> ColumnsOf(std::string_view name, TensorView<const float> projection,
                                  const AttentionProblem& p, int64_t num_projected) {
  CheckInput(name, projection);
  const Extents& shape = projection.shape;
  const bool heads = shape[1] == 1 || shape[1] == p.num_kv_heads;
  if (shape[0] != 1 || !heads || shape[2] != num_projected || shape[3] < p.kv_len) {
    Fail(ErrorCode::kShape,
         "{} has shape {}; expected [1, 1 or num_kv_heads = {}, num_projected = {}, at least "
         "kv_len = {}]",
         {name, shape, p.num_kv_heads, num_projected, p.kv_len});
  }
  projection.shape[3] = p.kv_len;
  return projection;
}

}  // namespace

void ProjectTokens(const TensorView<const float>& projection, const TensorView<const float>& rows,
                   std::span<const int32_t> lengths, const TensorView<float>& to,
                   ThreadPool* pool) {
  if (lengths.empty()) return Bmm(projection, rows, to, pool);
  for (int64_t b = 0; b < rows.shape[0]; ++b) {
    TensorView<const float> columns = projection;
    columns.shape[3] = lengths[static_cast<size_t>(b)];
    Bmm(columns, RowsOf(EntryOf(rows, b), 0, columns.shape[3]), EntryOf(to, b), pool);
  }
}

LinformerProblem ValidateLinformer(const TensorView<const float>& q,
                                   const TensorView<const float>& k,
                                   const TensorView<const float>& v, const LinformerOptions& o) {
  AttentionOptions over_tokens;
  over_tokens.scale = o.scale;
  over_tokens.key_lengths = o.key_lengths;
  const AttentionProblem p = ValidateLowRank(q, k, v, over_tokens);
  if (!o.key_projection.has_value()) Fail(ErrorCode::kOption, "key_projection is missing");
  const int64_t rows = o.key_projection.shape[2];
  LinformerProblem l;
  l.key_projection = ColumnsOf("key_projection", o.key_projection, p, rows);
  l.value_projection = o.value_projection.has_value()
                           ? ColumnsOf("value_projection", o.value_projection, p, rows)
                           : l.key_projection;
  for (int64_t b = 0; b < p.batch; ++b) {
    l.seen.push_back(p.KeyLength(b, 0) > 0 ? static_cast<int32_t>(rows) : 0);
  }
  l.over_projected.scale = o.scale;
  l.over_projected.key_lengths = l.seen;
  l.k = {p.batch, p.num_kv_heads, rows, p.head_dim};
  l.v = {p.batch, p.num_kv_heads, rows, p.head_dim_v};
  return l;
}

void Linformer(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
               const LinformerOptions& options, const AttentionOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("Linformer attention", [&] {
    const LinformerProblem p = ValidateLinformer(q, k, v, options);
    ValidateComposed(q, Planned(p.k), Planned(p.v), p.over_projected, outputs);
    CheckNoScores(outputs);
    SpansOf(outputs).ApartFrom("k", k).ApartFrom("v", v).ApartFrom(options);
    const OwnedTensor keys(p.k), values(p.v);
    ProjectTokens(p.key_projection, k, options.key_lengths, keys.view(), pool);
    ProjectTokens(p.value_projection, v, options.key_lengths, values.view(), pool);
    Attention(q, keys.view(), values.view(), p.over_projected, outputs, pool);
  });
}

}  // namespace heed
