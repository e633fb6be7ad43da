// Gated attention: exact attention, then its output times sigmoid(gate), row by row.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/compose/gated.cc"
#include <algorithm>
#include <limits>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/exact/attention_spans.h"
#include "src/memory_errors.h"
#include "src/simd/sigmoid-inl.h"
#include "src/view_checks.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// row *= sigmoid(gate); a gate for the whole row has `step` 0.
void GateRow(const float* gate, int64_t step, size_t width, float* HWY_RESTRICT row) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const VF whole = step == 0 ? Sigmoid(d, hn::Set(d, *gate)) : hn::Zero(d);
  size_t c = 0;
  for (; c + lanes <= width; c += lanes) {
    const VF factor = step == 0 ? whole : Sigmoid(d, hn::LoadU(d, gate + c));
    hn::StoreU(hn::Mul(hn::LoadU(d, row + c), factor), d, row + c);
  }
  if (c == width) return;
  const size_t rest = width - c;
  const VF factor = step == 0 ? whole : Sigmoid(d, hn::LoadN(d, gate + c, rest));
  hn::StoreN(hn::Mul(hn::LoadN(d, row + c, rest), factor), d, row + c, rest);
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed {
namespace {

HWY_EXPORT(GateRow);

// Normalisers without a denominator have no lse that would mark empty rows; there the row itself
// tells: 0 times a gate that is not finite must stay 0.
bool IsEmptyRow(const TensorView<float>& lse, const TensorView<float>& output, int64_t b, int64_t h,
                int64_t i) {
  if (lse.has_value()) return lse(b, h, i, 0) == -std::numeric_limits<float>::infinity();
  const float* row = &output(b, h, i, 0);
  return std::all_of(row, row + output.shape[3], [](float x) { return x == 0; });
}

}  // namespace

TensorView<const float> BroadcastGate(const TensorView<const float>& gate, const Extents& output) {
  return Broadcast("output_gate", gate, output, "[batch, num_heads, q_len, head_dim_v]");
}

void GatedAttention(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                    TensorView<const float> output_gate, const AttentionOptions& options,
                    const AttentionOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("gated attention", [&] {
    ValidateComposed(q, k, v, options, outputs);
    const Extents shape = outputs.output.shape;
    const TensorView<const float> gate = BroadcastGate(output_gate, shape);
    SpansOf(outputs).ApartFrom("output_gate", gate);
    AttentionOutputs inner = outputs;
    const bool has_lse =
        options.normalize == Normalize::kSoftmax || options.normalize == Normalize::kSoftmax1;
    const bool own_lse = !outputs.lse.has_value() && has_lse;
    const OwnedTensor lse =
        own_lse ? OwnedTensor({shape[0], shape[1], shape[2], 1}) : OwnedTensor();
    if (own_lse) inner.lse = lse.view();
    Attention(q, k, v, options, inner, pool);
    if (outputs.output.size() == 0) return;
    ForEachRow(shape, PoolOrDefault(pool), [&](int64_t b, int64_t h, int64_t i) {
      if (IsEmptyRow(inner.lse, outputs.output, b, h, i)) return;
      HWY_DYNAMIC_DISPATCH(GateRow)
      (&gate(b, h, i, 0), gate.strides[3], static_cast<size_t>(shape[3]),
       &outputs.output(b, h, i, 0));
    });
  });
}

}  // namespace heed
#endif  // HWY_ONCE
