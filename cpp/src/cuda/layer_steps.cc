#include "src/cuda/layer_steps.h"

#include <algorithm>

#include "src/layers/multi_head.h"

namespace heed::cuda {
namespace {

class MultiHeadSteps {
 public:
  MultiHeadSteps(ComposedSteps& steps, const MultiHeadShape& shape, const MultiHeadWeights& weights,
                 const MultiHeadOptions& options, const MultiHeadOutputs& outputs)
      : steps_(steps), s_(shape), w_(weights), o_(options), out_(outputs) {
    const bool averaged = out_.weights.has_value() && out_.weights.shape[1] != s_.num_heads;
    average_ = averaged && s_.num_heads > 0;
    rows_ = w_.w_o.has_value() ? Rows(s_.q_len, s_.num_heads * s_.head_dim_v) : out_.output;
    lse_ = out_.lse;
    const Extents of_rows = {s_.batch, s_.num_heads, s_.q_len, 1};
    if (s_.extra > 0 && !lse_.has_value()) lse_ = steps.Allocate(of_rows);
    weights_ = out_.weights;
    const int64_t columns = s_.kv_len + s_.extra;
    if (average_) weights_ = steps.Allocate({s_.batch, s_.num_heads, s_.q_len, columns});
  }

  void Run(const TensorView<const float>& query, const TensorView<const float>& key,
           const TensorView<const float>& value) {
    const TensorView<float> q = Projected(query, w_.w_q, w_.b_q, s_.num_heads, s_.head_dim);
    const TensorView<float> k = Projected(key, w_.w_k, w_.b_k, s_.num_kv_heads, s_.head_dim);
    const TensorView<float> v = Projected(value, w_.w_v, w_.b_v, s_.num_kv_heads, s_.head_dim_v);
    AttentionOutputs outputs;
    outputs.output = Heads();
    outputs.lse = lse_;
    outputs.weights = weights_;
    outputs.weights.shape[3] = s_.kv_len;
    steps_.Attend(q, k, v, o_.attention, outputs);
    if (s_.extra > 0) AddExtraKeys(q);
    if (!o_.head_mask.empty()) MaskHeads();
    if (average_) AverageWeights();
    if (w_.w_o.has_value()) Linear(steps_, rows_, FlatCols(w_.w_o), w_.b_o, out_.output);
  }

 private:
  TensorView<float> Rows(int64_t len, int64_t width) const {
    return steps_.Allocate({s_.batch, 1, len, width});
  }
  TensorView<float> Heads() const { return SplitHeads(rows_, s_.num_heads, s_.head_dim_v); }

  TensorView<float> Projected(const TensorView<const float>& x,
                              const TensorView<const float>& weight, std::span<const float> bias,
                              int64_t heads, int64_t dim) {
    const TensorView<float> rows = Rows(x.shape[2], heads * dim);
    Linear(steps_, x, FlatRows(weight), bias, rows);
    return SplitHeads(rows, heads, dim);
  }

  void AddExtraKeys(const TensorView<float>& q) {
    ExtraKeyParams params{};
    params.q = RowsOf(TensorView<const float>(q));
    params.output = RowsOf(Heads());
    params.lse = RowsOf(lse_);
    params.weights = RowsOf(weights_);
    params.bias_k = steps_.SendArray(w_.bias_k);
    params.bias_v = steps_.SendArray(w_.bias_v);
    params.sinks = steps_.SendArray(o_.attention.sinks);
    params.scale = HeadScale(s_, o_.attention);
    params.softcap = o_.attention.softcap.value_or(0);
    params.adds_zero = o_.add_zero_attn;
    SetHeads(q.shape, params);
    params.group = Narrow(s_.num_heads / std::max<int64_t>(s_.num_kv_heads, 1));
    params.len = Narrow(s_.q_len);
    params.kv_len = Narrow(s_.kv_len);
    params.head_dim = Narrow(s_.head_dim);
    params.width = Narrow(s_.head_dim_v);
    steps_.Run(params);
  }

  void MaskHeads() {
    const TensorView<const float> mask = {
        steps_.SendArray(o_.head_mask), {1, s_.num_heads, 1, 1}, {0, 1, 0, 0}};
    steps_.Run(MapOf(MapOp::kMask, {.x = Heads(), .y = mask}, Heads()));
  }

  // Means of heads: what tokens are to the means of other calls.
  void AverageWeights() {
    MeanParams params{};
    const Extents &from = weights_.strides, &to = out_.weights.strides;
    params.tokens = {weights_.data, {from[0], from[2], from[1]}};
    params.out = {out_.weights.data, {to[0], to[2], 0}};
    params.batch = Narrow(s_.batch);
    params.heads = Narrow(s_.q_len);
    params.group = 1;
    params.rows = 1;
    params.width = Narrow(weights_.shape[3]);
    params.block = params.len = Narrow(s_.num_heads);
    steps_.Run(params);
  }

  ComposedSteps& steps_;
  const MultiHeadShape& s_;
  const MultiHeadWeights& w_;
  const MultiHeadOptions& o_;
  const MultiHeadOutputs& out_;
  bool average_ = false;
  TensorView<float> rows_, lse_, weights_;
};

}  // namespace

void RunMultiHead(ComposedSteps& steps, const TensorView<const float>& query,
                  const TensorView<const float>& key, const TensorView<const float>& value,
                  const MultiHeadWeights& weights, const MultiHeadOptions& options,
                  const MultiHeadOutputs& outputs) {
  const MultiHeadShape shape =
      ValidateMultiHead(query, key, value, weights, options, outputs.lse.has_value());
  if (shape.batch == 0 || shape.q_len == 0) return;
  MultiHeadSteps(steps, shape, weights, options, outputs).Run(query, key, value);
}

void NormRows(ComposedSteps& steps, const LayerNormRule& rule, const TensorView<const float>& x,
              const TensorView<float>& to) {
  NormParams norm{};
  norm.kind = rule.norm == Norm::kLayer ? NormKind::kLayer : NormKind::kRms;
  norm.weight = steps.SendArray(rule.weight);
  norm.bias = steps.SendArray(rule.bias);
  norm.epsilon = rule.epsilon;
  norm.factor = 1;
  Normalise(steps, norm, x, to);
}

void AddRows(ComposedSteps& steps, const TensorView<const float>& x, const TensorView<float>& to) {
  steps.Run(MapOf(MapOp::kAdd, {.x = to, .y = x}, to));
}

RowPlaces SendPlaces(ComposedSteps& steps, const RowPositions& positions) {
  RowPlaces places{};
  places.offsets = steps.SendArray(std::span<const int64_t>(positions.offset));
  places.own_offsets = positions.offset.size() > 1;
  places.rows = steps.SendArray(positions.rows);
  places.own_rows = static_cast<int64_t>(positions.rows.size()) != positions.len;
  return places;
}

PhaseRule SendPhases(ComposedSteps& steps, const Spectrum& spectrum) {
  PhaseRule rule{};
  rule.frequency = steps.SendArray(std::span<const double>(spectrum.frequency));
  rule.growth = steps.SendArray(std::span<const double>(spectrum.growth));
  rule.magnitude = spectrum.magnitude;
  rule.center = spectrum.center;
  return rule;
}

void RotateRows(ComposedSteps& steps, const RotationProblem& p, const TensorView<float>& output) {
  RotateParams params{};
  params.x = RowsOf(p.x);
  params.out = RowsOf(output);
  params.places = SendPlaces(steps, p.positions);
  params.phases = SendPhases(steps, p.spectrum);
  params.cos = NumbersOf(p.cos);
  params.sin = NumbersOf(p.sin);
  params.sign = p.sign;
  params.interleaved = p.pairing == RopePairing::kInterleaved;
  params.grid_width = p.grid_width;
  SetHeads(p.x.shape, params);
  params.len = Narrow(p.x.shape[2]);
  params.width = Narrow(p.x.shape[3]);
  params.pairs = Narrow(p.pairs());
  steps.Run(params);
}

}  // namespace heed::cuda
