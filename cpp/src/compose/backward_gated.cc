// Gradients of gated attention: those of a product, then those of attention.
#include <algorithm>
#include <cmath>

#include "src/compose/backward_attention.h"
#include "src/compose/backward_request.h"
#include "src/compose/backward_rows.h"
#include "src/compose/compose_problem.h"
#include "src/compose/composed_request.h"

namespace heed {
namespace {

struct GatedRow {
  const float* attended;  // before the gate
  const float* d_out;
  float* d_attended;
  float* d_gate;
};

// A row of zeros, as that of a query without keys, has a gradient of 0 for its gate whatever the
// gate is and whatever arrives.
void GateRowBackward(const GatedRow& row, const float* gate, int64_t gate_step, int64_t width) {
  const bool empty =
      std::all_of(row.attended, row.attended + width, [](float x) { return x == 0; });
  for (int64_t d = 0; d < width; ++d) {
    const double open = 1 / (1 + std::exp(-static_cast<double>(gate[d * gate_step])));
    const double arriving = static_cast<double>(row.d_out[d]);
    row.d_attended[d] = static_cast<float>(arriving * open);
    const double slope = open * (1 - open) * static_cast<double>(row.attended[d]);
    row.d_gate[d] = empty ? 0.0f : static_cast<float>(arriving * slope);
  }
}

}  // namespace

void GatedBackward(const ComposedBackward& call) {
  const ComposedRequest r = ReadComposed(call.reader);
  const AttentionOptions options = OptionsOf(r.rest);
  const KeptAttention attention(r.q, r.k, r.v, options, call.pool);
  const TensorView<float>& attended = attention.out();
  const TensorView<const float> gate = BroadcastGate(ReadGate(call.reader), attended.shape);
  const TensorView<const float> d_output = call.d_output();
  const OwnedTensor d_attended(attended.shape), d_gate(attended.shape);
  if (attended.size() > 0) {
    ForEachRow(attended.shape, call.pool, [&](int64_t b, int64_t h, int64_t i) {
      GateRowBackward({&attended(b, h, i, 0), &d_output(b, h, i, 0), &d_attended.view()(b, h, i, 0),
                       &d_gate.view()(b, h, i, 0)},
                      &gate(b, h, i, 0), gate.strides[3], attended.shape[3]);
    });
  }
  AttentionGradients to = call.WantedOfAttention();
  to.d_lse = call.d_lse();
  attention.Backward(d_attended.view(), to);
  SumOver(d_gate.view(), call.Wanted("output_gate"), call.pool);
}

}  // namespace heed
