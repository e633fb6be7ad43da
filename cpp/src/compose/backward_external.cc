// Gradients of external attention: back through the tokens that attend to the units, and through
// the denominators of the units' columns, which are an lse.
#include "src/compose/backward_attention.h"
#include "src/compose/backward_request.h"
#include "src/compose/backward_rows.h"
#include "src/compose/compose_problem.h"
#include "src/compose/composed_request.h"

namespace heed {
namespace {

void Negate(const TensorView<float>& rows, ThreadPool& pool) {
  ForEachRow(rows.shape, pool,
             [&](int64_t b, int64_t h, int64_t i) { rows(b, h, i, 0) = -rows(b, h, i, 0); });
}

// [batch, num_heads, units, 1] as [batch, num_heads, 1, units].
TensorView<float> AsBias(const TensorView<float>& columns) {
  const auto& [batch, heads, units, one] = columns.shape;
  return Contiguous(columns.data, batch, heads, 1, units);
}

}  // namespace

void ExternalBackward(const ComposedBackward& call) {
  const ExternalRequest r = ReadExternal(call.reader);
  ExternalProblem p = ValidateExternal(r.q, r.memory_k, r.memory_v, r.options, {});
  AttentionOptions over_tokens;
  over_tokens.scale = r.options.scale;
  over_tokens.key_lengths = r.options.lengths;
  TensorView<const float> no_values = r.q;
  no_values.shape[3] = 0;
  const KeptAttention units(p.memory_k, r.q, no_values, over_tokens, call.pool);

  const OwnedTensor bias(units.lse().shape), d_bias(units.lse().shape);
  SumOver(units.lse(), bias.view(), call.pool);
  Negate(bias.view(), call.pool);
  p.over_units.bias = AsBias(bias.view());
  const KeptAttention tokens(r.q, p.memory_k, p.memory_v, p.over_units, call.pool);

  const OwnedTensor d_q(r.q.shape), d_memory_k(p.memory_k.shape), d_memory_v(p.memory_v.shape);
  AttentionGradients to;
  to.d_q = d_q.view();
  to.d_k = d_memory_k.view();
  to.d_v = d_memory_v.view();
  to.d_bias = AsBias(d_bias.view());
  tokens.Backward(call.d_output(), to);
  SumOver(d_memory_v.view(), call.Wanted("memory_v"), call.pool);

  Negate(d_bias.view(), call.pool);
  const OwnedTensor more_q(r.q.shape), more_memory_k(p.memory_k.shape);
  AttentionGradients of_units;
  of_units.d_q = more_memory_k.view();
  of_units.d_k = more_q.view();
  of_units.d_lse = d_bias.view();
  units.Backward(units.out(), of_units);
  AddRows(more_memory_k.view(), d_memory_k.view(), call.pool);
  SumOver(d_memory_k.view(), call.Wanted("memory_k"), call.pool);
  AddRows(more_q.view(), d_q.view(), call.pool);
  SumOver(d_q.view(), call.Wanted("q"), call.pool);
}

}  // namespace heed
