// Layers by name, on the device: multi-head attention, the transformer block, the classifier, and
// the set and Perceiver blocks.
#include <algorithm>
#include <vector>

#include "src/compose/request.h"
#include "src/compose/set_attention.h"
#include "src/compose/set_attention_request.h"
#include "src/cuda/layer_steps.h"
#include "src/cuda/request_rows.h"
#include "src/layers/attention_classifier.h"
#include "src/layers/multi_head_request.h"
#include "src/layers/request.h"

namespace heed::cuda {
namespace {

// Multi-head attention.

void RunHeadsRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                 ComposedSteps& steps) {
  const MultiHeadRequest r = ReadMultiHead(reader);
  RunMultiHead(steps, r.query, r.key, r.value, r.weights, r.options, FindOutputs(r, outputs));
}

// Attention of layers that want nothing but its output.
void AttendHeads(ComposedSteps& steps, const TensorView<const float>& x,
                 const TensorView<const float>& y, const MultiHeadWeights& weights,
                 const MultiHeadOptions& options, const TensorView<float>& to) {
  MultiHeadOutputs out;
  out.output = to;
  RunMultiHead(steps, x, y, y, weights, options, out);
}

// New rows like x, of another width.
TensorView<float> NewRows(ComposedSteps& steps, const TensorView<const float>& x, int64_t width) {
  return steps.Allocate({x.shape[0], 1, x.shape[2], width});
}

// The transformer block.

MapOp ActivationOf(Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return MapOp::kGelu;
    case Activation::kGeluTanh:
      return MapOp::kGeluTanh;
    case Activation::kSilu:
      return MapOp::kSilu;
    case Activation::kRelu:
      break;
  }
  return MapOp::kRelu;
}

void FeedForward(ComposedSteps& steps, const BlockRequest& r, const TensorView<float>& x,
                 const TensorView<float>& to) {
  const TransformerBlockWeights& w = r.weights;
  const int64_t ff_dim = w.w_up.shape[2];
  const TensorView<float> up = NewRows(steps, x, ff_dim);
  const MapOp activate = ActivationOf(r.options.activation);
  Linear(steps, x, w.w_up, w.b_up, up);
  if (w.w_gate.has_value()) {
    const TensorView<float> gate = NewRows(steps, x, ff_dim);
    Linear(steps, x, w.w_gate, w.b_gate, gate);
    steps.Run(MapOf(activate, {.x = gate, .y = up}, up));
  } else {
    steps.Run(MapOf(activate, {.x = up}, up));
  }
  Linear(steps, up, w.w_down, w.b_down, to);
}

void RunBlockRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                 ComposedSteps& steps) {
  const BlockRequest r = ReadBlock(reader);
  const TransformerBlockOptions& o = r.options;
  const TensorView<float> output = RowsOutput(outputs, "output");
  if (r.x.size() == 0) return;
  const LayerNormRule norm1 = {o.norm, o.epsilon, r.weights.norm1_weight, r.weights.norm1_bias};
  const LayerNormRule norm2 = {o.norm, o.epsilon, r.weights.norm2_weight, r.weights.norm2_bias};
  const TensorView<float> y = steps.Allocate(r.x.shape), normed = steps.Allocate(r.x.shape);
  const bool pre = o.order == NormOrder::kPre;
  if (pre) NormRows(steps, norm1, r.x, normed);
  const TensorView<const float> x = pre ? TensorView<const float>(normed) : r.x;
  AttendHeads(steps, x, x, r.weights.attention, o.attention, y);
  AddRows(steps, r.x, y);
  NormRows(steps, pre ? norm2 : norm1, y, pre ? normed : y);
  FeedForward(steps, r, pre ? normed : y, output);
  AddRows(steps, y, output);
  if (!pre) NormRows(steps, norm2, output, output);
}

// The classifier.

TensorView<float> EmbeddedTokens(ComposedSteps& steps, const ClassifierRequest& r,
                                 const int32_t* lengths) {
  const int64_t batch = r.tokens.shape[2], len = r.tokens.shape[3];
  const TensorView<float> x = steps.Allocate({batch, 1, len, r.weights.embedding.shape[3]});
  std::vector<int32_t> tokens;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < len; ++i) tokens.push_back(r.tokens(0, 0, b, i));
  }
  EmbedParams params{};
  params.tokens = steps.SendArray(std::span<const int32_t>(tokens));
  params.embedding = RowsOf(r.weights.embedding);
  params.positions = RowsOf(r.weights.position_table);
  params.lengths = lengths;
  params.out = RowsOf(x);
  params.batch = Narrow(batch);
  params.rows = Narrow(len);
  params.width = Narrow(x.shape[3]);
  steps.Run(params);
  return x;
}

TensorView<float> PooledRows(ComposedSteps& steps, const ClassifierRequest& r,
                             const int32_t* lengths, const TensorView<float>& rows) {
  const auto [batch, heads, len, width] = rows.shape;
  const TensorView<float> pooled = steps.Allocate({1, 1, batch, width});
  PoolParams params{};
  params.pooling = r.options.pooling;
  params.rows = RowsOf(TensorView<const float>(rows));
  params.query = steps.SendArray(r.weights.pool_query);
  params.lengths = lengths;
  params.weights = steps.AllocateArray<double>({1, 1, batch, len});
  params.out = RowsOf(pooled);
  params.batch = Narrow(batch);
  params.len = Narrow(len);
  params.width = Narrow(width);
  steps.Run(params);
  return pooled;
}

void RunClassifierRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                      ComposedSteps& steps) {
  const ClassifierRequest r = ReadClassifier(reader);
  const TensorView<float> view = OutputView(outputs, "output");  // [batch, num_classes, 1, 1]
  const TensorView<float> logits = {
      view.data, {1, 1, view.shape[0], view.shape[1]}, {0, 0, view.strides[0], view.strides[1]}};
  const int32_t* lengths = steps.SendArray(r.options.attention.attention.key_lengths);
  const TensorView<float> x = EmbeddedTokens(steps, r, lengths);
  const TensorView<float> h = NewRows(steps, x, r.weights.w_class.shape[3]);
  AttendHeads(steps, x, x, r.weights.attention, r.options.attention, h);
  Linear(steps, PooledRows(steps, r, lengths, h), r.weights.w_class, r.weights.b_class, logits);
}

// Set and Perceiver blocks.

void RunSetBlock(ComposedSteps& steps, const TensorView<const float>& x,
                 const TensorView<const float>& y, const SetBlockWeights& w,
                 const SetBlockOptions& o, const TensorView<float>& output) {
  const Norm kind = o.norm.value_or(Norm::kLayer);
  const TensorView<float> h = steps.Allocate(x.shape);
  AttendHeads(steps, x, y, w.attention, o.attention, h);
  if (o.residual == SetResidual::kProjected) {
    const TensorView<float> queries = steps.Allocate(x.shape);
    Linear(steps, x, FlatRows(w.attention.w_q), w.attention.b_q, queries);
    AddRows(steps, queries, h);
  } else {
    AddRows(steps, x, h);
  }
  if (o.norm) NormRows(steps, {kind, o.epsilon, w.norm1_weight, w.norm1_bias}, h, h);
  Linear(steps, h, w.w_ff, w.b_ff, output);
  steps.Run(MapOf(MapOp::kRelu, {.x = output}, output));
  AddRows(steps, h, output);
  if (o.norm) NormRows(steps, {kind, o.epsilon, w.norm2_weight, w.norm2_bias}, output, output);
}

void RunInducedSetRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                      ComposedSteps& steps) {
  const InducedSetRequest r = ReadInducedSet(reader);
  const TensorView<float> output = RowsOutput(outputs, "output");
  const TensorView<const float> queries =
      r.block == SetBlock::kSab ? r.x : RowsOfBatch(r.inducing, r.x.shape[0]);
  if (r.block != SetBlock::kIsab) {
    return RunSetBlock(steps, queries, r.x, r.weights[0], r.options, output);
  }
  const TensorView<float> h = steps.Allocate(queries.shape);
  RunSetBlock(steps, queries, r.x, r.weights[0], r.options, h);
  RunSetBlock(steps, r.x, h, r.weights[1], OptionsOfSecond(r.options), output);
}

void RunPerceiverRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                     ComposedSteps& steps) {
  const PerceiverRequest r = ReadPerceiver(reader);
  const PerceiverWeights& w = r.weights;
  const double epsilon = r.options.epsilon;
  const TensorView<float> output = RowsOutput(outputs, "output");
  const TensorView<float> normed = steps.Allocate(r.latents.shape);
  const TensorView<float> z = steps.Allocate(r.latents.shape);
  const TensorView<float> keys = steps.Allocate(r.input.shape);
  const TensorView<float> hidden = NewRows(steps, r.latents, w.w_up.shape[2]);
  NormRows(steps, {Norm::kLayer, epsilon, w.norm1_weight, w.norm1_bias}, r.latents, normed);
  NormRows(steps, {Norm::kLayer, epsilon, w.key_norm_weight, w.key_norm_bias}, r.input, keys);
  AttendHeads(steps, normed, keys, w.attention, r.options.attention, z);
  if (r.options.query_residual) AddRows(steps, r.latents, z);
  NormRows(steps, {Norm::kLayer, epsilon, w.norm2_weight, w.norm2_bias}, z, normed);
  Linear(steps, normed, w.w_up, w.b_up, hidden);
  steps.Run(MapOf(ActivationOf(r.options.activation), {.x = hidden}, hidden));
  Linear(steps, hidden, w.w_down, w.b_down, output);
  AddRows(steps, z, output);
}

constexpr DeviceRow kRows[] = {{"multi_head", PlanMultiHead, RunHeadsRow},
                               {"multi_query", PlanMultiQuery, RunHeadsRow},
                               {"grouped_query", PlanMultiHead, RunHeadsRow},
                               {"transformer_block", PlanTransformerBlock, RunBlockRow},
                               {"attention_classifier", PlanAttentionClassifier, RunClassifierRow},
                               {"induced_set", PlanInducedSet, RunInducedSetRow},
                               {"perceiver", PlanPerceiver, RunPerceiverRow}};

}  // namespace

std::span<const DeviceRow> LayerRows() { return kRows; }

}  // namespace heed::cuda
