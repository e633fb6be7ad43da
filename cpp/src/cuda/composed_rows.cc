// What is composed around exact attention, on the device: differential, talking heads, Hopfield,
// gated, pooling.
#include <vector>

#include "src/compose/compose_problem.h"
#include "src/compose/composed_request.h"
#include "src/compose/differential.h"
#include "src/compose/hopfield.h"
#include "src/compose/request.h"
#include "src/cuda/plan.h"
#include "src/cuda/request_rows.h"
#include "src/cuda/step_calls.h"

namespace heed::cuda {
namespace {

TensorView<float> Like(ComposedSteps& steps, const TensorView<float>& view) {
  return view.has_value() ? steps.Allocate(view.shape) : TensorView<float>();
}

// Differential attention.

AttentionRequest HalfOf(const ComposedRequest& r) {
  AttentionRequest half = r.rest;
  half.q = StoredTensor(Halved("q", r.q).first);
  half.k = StoredTensor(Halved("k", r.k).first);
  return half;
}

std::vector<OutputSpec> PlanDifferentialRow(const RequestReader& reader) {
  const ComposedRequest r = ReadComposed(reader);
  ValidateDifferential(r.q, r.k, r.v, ReadDifferential(reader, r), {});
  return PlanOnDevice(HalfOf(r));
}

// rows -= lambda other, head by head.
void Subtract(ComposedSteps& steps, const float* lambda, const TensorView<float>& other,
              const TensorView<float>& rows) {
  const TensorView<const float> of_heads = {lambda, {1, rows.shape[1], 1, 1}, {0, 1, 0, 0}};
  steps.Run(MapOf(MapOp::kSubtract, {.x = rows, .y = of_heads, .z = other}, rows));
}

void NormaliseHeads(ComposedSteps& steps, const DifferentialOptions& o,
                    const TensorView<float>& rows) {
  if (o.sub_norm == SubNorm::kNone) return;
  NormParams norm{};
  norm.kind = NormKind::kRms;
  norm.weight = steps.SendArray(o.norm_weight);
  norm.epsilon = o.epsilon;
  norm.factor = 1 - o.lambda_init;
  Normalise(steps, norm, rows, rows);
}

void RunDifferentialRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                        ComposedSteps& steps) {
  const ComposedRequest r = ReadComposed(reader);
  const DifferentialOptions o = ReadDifferential(reader, r);
  const Halves q = Halved("q", r.q), k = Halved("k", r.k);
  const AttentionOutputs first = FloatOutputs(r, outputs);
  AttentionOutputs second;
  second.output = Like(steps, first.output);
  second.weights = Like(steps, first.weights);
  steps.Attend(q.second, k.second, r.v, o.attention, second);
  steps.Attend(q.first, k.first, r.v, o.attention, first);
  std::vector<float> lambda;
  for (int64_t h = 0; h < r.q.shape[1]; ++h) lambda.push_back(LambdaOf(o, h));
  const float* sent = steps.SendArray(std::span<const float>(lambda));
  Subtract(steps, sent, second.output, first.output);
  if (first.weights.has_value()) Subtract(steps, sent, second.weights, first.weights);
  NormaliseHeads(steps, o, first.output);
}

// Talking heads: scores of all heads, mixed, are the biases of attention without a dot product;
// its weights, mixed, multiply the values.

std::vector<OutputSpec> PlanTalkingHeadsRow(const RequestReader& reader) {
  const ComposedRequest r = ReadComposed(reader);
  const TalkingHeadsOptions o = ReadTalkingHeads(reader, r);
  std::vector<OutputSpec> specs = PlanOnDevice(r.rest);
  ValidateTalkingHeads(o, {}, r.q.shape[1]);
  return specs;
}

// Pairs of all heads times a matrix from head to head; as they are without one.
TensorView<float> Mixed(ComposedSteps& steps, std::span<const float> matrix,
                        const TensorView<float>& pairs, TensorView<float> to) {
  const auto [batch, heads, rows, cols] = pairs.shape;
  if (matrix.empty()) {
    if (to.has_value()) Copy(steps, pairs, to);
    return to.has_value() ? to : pairs;
  }
  const TensorView<float> mixed = steps.Allocate(pairs.shape);
  const TensorView<const float> transposed = {
      steps.SendArray(matrix), {1, 1, heads, heads}, {0, 0, 1, heads}};
  const auto flat = [&](const TensorView<float>& view) {
    return Contiguous(view.data, batch, 1, heads, rows * cols);
  };
  steps.Run(ProductOf(transposed, flat(pairs), flat(mixed)));
  if (to.has_value()) Copy(steps, mixed, to);
  return mixed;
}

// What the softmax of each head sees, softcap and bias included.
TensorView<float> MixedScores(ComposedSteps& steps, const ComposedRequest& r,
                              const TalkingHeadsOptions& o) {
  const TensorView<float> raw = RawScores(steps, r.q, r.k, o.attention);
  const TensorView<float> scores = Mixed(steps, o.mix_scores, raw, {});
  if (o.attention.softcap) {
    const float cap = static_cast<float>(*o.attention.softcap);
    steps.Run(MapOf(MapOp::kCap, {.x = scores, .factor = cap}, scores));
  }
  if (!o.attention.bias.has_value()) return scores;
  steps.Run(MapOf(MapOp::kAdd, {.x = scores, .y = o.attention.bias}, scores));
  return scores;
}

void RunTalkingHeadsRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                        ComposedSteps& steps) {
  const ComposedRequest r = ReadComposed(reader);
  const TalkingHeadsOptions o = ReadTalkingHeads(reader, r);
  const AttentionOutputs out = FloatOutputs(r, outputs);
  AttentionOptions of_scores = o.attention;
  of_scores.scale = 1;
  of_scores.softcap.reset();
  of_scores.bias = MixedScores(steps, r, o);
  AttentionOutputs seen;
  seen.weights = steps.Allocate(of_scores.bias.shape);
  seen.scores = steps.Allocate(of_scores.bias.shape);
  seen.output = NoColumns(seen.weights, r.q.shape);
  seen.lse = out.lse;
  steps.Attend(ColumnsOf(r.q, 0, 0), ColumnsOf(r.k, 0, 0), ColumnsOf(r.v, 0, 0), of_scores, seen);
  const TensorView<float> weights = Mixed(steps, o.mix_weights, seen.weights, out.weights);
  SumValues(steps, weights, seen.scores, r.v, out.output);
}

// Hopfield retrieval. The host does not see whether all states rest: all steps run.

std::vector<OutputSpec> PlanHopfieldRow(const RequestReader& reader) {
  const ComposedRequest r = ReadComposed(reader);
  ValidateHopfield(ReadHopfield(reader, r), {}, r.q.shape[3], r.k.shape[3]);
  return PlanOnDevice(r.rest);
}

void RunHopfieldRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                    ComposedSteps& steps) {
  const ComposedRequest r = ReadComposed(reader);
  const HopfieldOptions o = ReadHopfield(reader, r);
  const AttentionOutputs out = FloatOutputs(r, outputs);
  if (o.steps == 1 || r.q.size() == 0) return steps.Attend(r.q, r.k, r.v, o.attention, out);
  const auto [batch, heads, len, width] = r.q.shape;
  const TensorView<float> states = steps.Allocate(r.q.shape), newest = steps.Allocate(r.q.shape);
  const TensorView<float> resting = steps.Allocate({batch, heads, len, 1});
  Copy(steps, r.q, states);
  Fill(steps, 0, resting);
  RestParams rest{};
  rest.newest = RowsOf(TensorView<const float>(newest));
  rest.states = RowsOf(states);
  rest.resting = resting.data;
  rest.tolerance = o.tolerance;
  SetHeads(r.q.shape, rest);
  rest.len = Narrow(len);
  rest.width = Narrow(width);
  const int64_t updates = steps.RoundsOf(o.steps - 1);
  for (int64_t n = 0; n < updates; ++n) {
    steps.Attend(states, r.k, r.k, UpdateOptions(o), {.output = newest});
    steps.Run(rest);
  }
  steps.Attend(states, r.k, r.v, o.attention, out);
}

// Gated attention.

std::vector<OutputSpec> PlanGatedRow(const RequestReader& reader) {
  std::vector<OutputSpec> specs = PlanOnDevice(ReadComposed(reader).rest);
  BroadcastGate(ReadGate(reader), specs[0].shape);
  return specs;
}

void RunGatedRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                 ComposedSteps& steps) {
  const ComposedRequest r = ReadComposed(reader);
  const AttentionOptions options = OptionsOf(r.rest);
  AttentionOutputs out = FloatOutputs(r, outputs);
  const Extents& shape = out.output.shape;
  const bool own_lse = !out.lse.has_value() && options.normalize == Normalize::kSoftmax;
  if (own_lse) out.lse = steps.Allocate({shape[0], shape[1], shape[2], 1});
  steps.Attend(r.q, r.k, r.v, options, out);
  GateParams gate{};
  gate.rows = RowsOf(out.output);
  gate.gate = NumbersOf(BroadcastGate(ReadGate(reader), shape));
  gate.lse = RowsOf(TensorView<const float>(out.lse));
  SetHeads(shape, gate);
  gate.len = Narrow(shape[2]);
  gate.width = Narrow(shape[3]);
  steps.Run(gate);
}

// Attention pooling.

std::vector<OutputSpec> PlanPoolingRow(const RequestReader& reader) {
  return PlanOnDevice(ReadPooling(reader));
}

void RunPoolingRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                   ComposedSteps& steps) {
  const AttentionRequest r = ReadPooling(reader);
  steps.Attend(r.q, r.k, r.v, OptionsOf(r), FindOutputs(r, outputs), {});
}

constexpr DeviceRow kRows[] = {{"differential", PlanDifferentialRow, RunDifferentialRow},
                               {"talking_heads", PlanTalkingHeadsRow, RunTalkingHeadsRow},
                               {"hopfield", PlanHopfieldRow, RunHopfieldRow},
                               {"gated", PlanGatedRow, RunGatedRow},
                               {"attention_pooling", PlanPoolingRow, RunPoolingRow}};

}  // namespace

std::span<const DeviceRow> ComposedRows() { return kRows; }

}  // namespace heed::cuda
