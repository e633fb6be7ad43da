// External attention and synthesizers by name, on the device: their inputs have no keys.
#include "heed/linear.h"
#include "src/compose/compose_problem.h"
#include "src/compose/composed_request.h"
#include "src/compose/request.h"
#include "src/cuda/request_rows.h"
#include "src/cuda/step_calls.h"

namespace heed::cuda {
namespace {

// External attention: the units attend to the tokens for the denominators of their columns, then
// the tokens to the units with minus their logarithms as bias.

void RunExternalRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                    ComposedSteps& steps) {
  const ExternalRequest r = ReadExternal(reader);
  ExternalProblem p = ValidateExternal(r.q, r.memory_k, r.memory_v, r.options, {});
  const auto [batch, heads, len, dim] = r.q.shape;
  const int64_t units = p.memory_k.shape[2];
  const TensorView<float> columns = steps.Allocate({batch, heads, 1, units});
  AttentionOutputs first;
  first.lse = Contiguous(columns.data, batch, heads, units, 1);
  first.output = NoColumns(columns, first.lse.shape);
  AttentionOptions over_tokens;
  over_tokens.scale = r.options.scale;
  over_tokens.key_lengths = r.options.lengths;
  steps.Attend(p.memory_k, r.q, ColumnsOf(r.q, 0, 0), over_tokens, first);
  steps.Run(MapOf(MapOp::kScale, {.x = columns, .factor = -1}, columns));
  p.over_units.bias = columns;
  AttentionOutputs out;
  out.output = OutputView(outputs, "output");
  if (reader.Flag("return_weights")) out.weights = OutputView(outputs, "weights");
  steps.Attend(r.q, p.memory_k, p.memory_v, p.over_units, out);
}

// Synthesizers.

std::vector<OutputSpec> PlanSynthesizerRow(const RequestReader& reader) {
  return PlanOnDevice(AttentionOf(ReadSynthesizer(reader)));
}

// Queries relu(hidden) with a last column of 1, and keys with the bias as last column.
void MakeDenseRows(ComposedSteps& steps, SynthesizerProblem& p) {
  const auto [batch, heads, q_len, width] = p.q.shape;
  const TensorView<float> queries = steps.Allocate({batch, heads, q_len, width + 1});
  const TensorView<float> keys = steps.Allocate({batch, heads, p.v.shape[2], width + 1});
  steps.Run(MapOf(MapOp::kRelu, {.x = p.q}, ColumnsOf(queries, 0, width)));
  Fill(steps, 1, ColumnsOf(queries, width, 1));
  Copy(steps, p.k, ColumnsOf(keys, 0, width));
  const TensorView<float> last = ColumnsOf(keys, width, 1);
  if (p.row_bias.has_value()) {
    Copy(steps, TransposedView(p.row_bias), last);
  } else {
    Fill(steps, 0, last);
  }
  p.q = queries;
  p.k = keys;
}

void RunSynthesizerRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                       ComposedSteps& steps) {
  const SynthesizerRequest r = ReadSynthesizer(reader);
  SynthesizerProblem p = ValidateSynthesizer(r);
  if (!r.random()) MakeDenseRows(steps, p);
  AttentionOutputs out;
  out.output = OutputView(outputs, "output");
  if (r.rest.return_lse) out.lse = OutputView(outputs, "lse");
  if (r.rest.return_weights) out.weights = OutputView(outputs, "weights");
  steps.Attend(p.q, p.k, p.v, p.options, out);
}

constexpr DeviceRow kRows[] = {{"external", PlanExternal, RunExternalRow},
                               {"synthesizer", PlanSynthesizerRow, RunSynthesizerRow}};

}  // namespace

std::span<const DeviceRow> KeylessRows() { return kRows; }

}  // namespace heed::cuda
