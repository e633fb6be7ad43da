// External attention as two calls of the exact loop: the units attend to the tokens for the
// denominators of their columns, then the tokens to the units with minus their logarithms as bias.
#include <string>
#include <vector>

#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/exact/attention_spans.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// Memory as every batch entry and head sees it.
TensorView<const float> Spread(std::string_view name, TensorView<const float> memory,
                               const Extents& q) {
  const Extents full = {q[0], q[1], memory.shape[2], memory.shape[3]};
  if (memory.shape[0] != 1) {
    Fail(ErrorCode::kShape,
         "{} has shape {}; expected a batch of 1: every entry has the same memory",
         {name, memory.shape});
  }
  return Broadcast(name, memory, full, "1, num_heads or 1, num_units, dim");
}

void CheckLengths(std::span<const int32_t> lengths, const Extents& q) {
  if (lengths.empty()) return;
  if (lengths.size() != static_cast<size_t>(q[0])) {
    Fail(ErrorCode::kShape, "key_lengths has {} values; expected batch = {}",
         {lengths.size(), q[0]});
  }
  for (const int32_t length : lengths) {
    if (length >= 0 && length <= q[2]) continue;
    Fail(ErrorCode::kRange, "key_lengths holds {}; lengths lie in [0, q_len = {}]", {length, q[2]});
  }
}

// Tokens within the length see all units, the others none.
ScratchVector<int32_t> UnitsOfTokens(std::span<const int32_t> lengths, const Extents& q,
                                     int64_t units) {
  ScratchVector<int32_t> seen;
  for (size_t b = 0; b < lengths.size(); ++b) {
    for (int64_t i = 0; i < q[2]; ++i) {
      seen.push_back(i < lengths[b] ? static_cast<int32_t>(units) : 0);
    }
  }
  return seen;
}

}  // namespace

ExternalProblem ValidateExternal(const TensorView<const float>& q,
                                 const TensorView<const float>& memory_k,
                                 const TensorView<const float>& memory_v,
                                 const ExternalOptions& options, const AttentionOutputs& outputs) {
  if (outputs.lse.has_value() || outputs.scores.has_value()) {
    Fail(ErrorCode::kUnsupported,
         "external attention normalises twice, hence has no one lse and no one score; ask for "
         "weights");
  }
  CheckInput("q", q);
  CheckLengths(options.lengths, q.shape);
  CheckFinite("scale", options.scale);
  ExternalProblem p;
  p.memory_k = Spread("memory_k", memory_k, q.shape);
  p.memory_v = Spread("memory_v", memory_v, q.shape);
  p.seen = UnitsOfTokens(options.lengths, q.shape, p.memory_k.shape[2]);
  p.over_units.scale = options.scale;
  p.over_units.key_lengths = p.seen;
  return p;
}

void ExternalAttention(TensorView<const float> q, TensorView<const float> memory_k,
                       TensorView<const float> memory_v, const ExternalOptions& options,
                       const AttentionOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("external attention", [&] {
    ExternalProblem p = ValidateExternal(q, memory_k, memory_v, options, outputs);
    ValidateComposed(q, p.memory_k, p.memory_v, p.over_units, outputs);
    SpansOf(outputs)
        .ApartFrom("memory_k", memory_k)
        .ApartFrom("memory_v", memory_v)
        .ApartFrom("lengths", options.lengths);
    const int64_t units = p.memory_k.shape[2];
    const OwnedTensor columns({q.shape[0], q.shape[1], units, 1});

    AttentionOptions over_tokens;
    over_tokens.scale = options.scale;
    over_tokens.key_lengths = options.lengths;
    TensorView<const float> no_values = q;
    no_values.shape[3] = 0;
    float nothing = 0;
    AttentionOutputs first;
    first.output = Contiguous(&nothing, q.shape[0], q.shape[1], units, 0);
    first.lse = columns.view();
    Attention(p.memory_k, q, no_values, over_tokens, first, pool);
    ForEachRow(columns.view().shape, PoolOrDefault(pool),
               [&](int64_t b, int64_t h, int64_t n) { columns.view()(b, h, n, 0) *= -1; });

    const OwnedTensor& lse = columns;
    p.over_units.bias = {
        lse.view().data, {q.shape[0], q.shape[1], 1, units}, {q.shape[1] * units, units, units, 1}};
    Attention(q, p.memory_k, p.memory_v, p.over_units, outputs, pool);
  });
}

}  // namespace heed
