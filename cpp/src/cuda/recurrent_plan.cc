#include "src/cuda/recurrent_plan.h"

#include <algorithm>

#include "src/message.h"

namespace heed::cuda {
namespace {

void RefuseWhen(bool given, const char* option) {
  if (given) {
    Fail(ErrorCode::kUnsupported,
         "{} is not offered on the GPU yet; use heed::RecurrentAttention()", {option});
  }
}

void RefuseOptions(const RecurrentOptions& o) {
  RefuseWhen(o.feature_map == FeatureMap::kRandom, "feature_map = random");
  RefuseWhen(o.feature_map == FeatureMap::kUser, "feature_mod");
  RefuseWhen(o.level_weights.has_value(), "level_weights");
  RefuseWhen(o.mini_batch > 0, "mini_batch");
}

// Everything but what the numbers of tensors are: they lie on the device.
RecurrentProblem ValidateInputs(const TensorView<const float>& q, const TensorView<const float>& k,
                                const TensorView<const float>& v, RecurrentOptions options) {
  RefuseOptions(options);
  const TensorView<const float> log_decay = options.log_decay;
  options.log_decay = {};
  RecurrentProblem p = ValidateRecurrent(q, k, v, options);
  p.options.log_decay = log_decay;
  SetLogDecay(p);
  if (p.feature_dim > kMaxFeatures) {
    Fail(
        ErrorCode::kUnsupported,
        "q has head_dim {}, which makes {} features; recurrent attention on the GPU takes up to {}",
        {p.head_dim, p.feature_dim, kMaxFeatures});
  }
  return p;
}

template <class T>
FloatRows<T> RowsOf(const TensorView<T>& view) {
  FloatRows<T> rows{};
  rows.data = view.data;
  std::copy_n(view.strides.begin(), 3, rows.strides);
  return rows;
}

DevicePairs<float> NumbersOf(const TensorView<const float>& view) {
  DevicePairs<float> numbers{};
  numbers.data = view.data;
  std::copy(view.strides.begin(), view.strides.end(), numbers.strides);
  return numbers;
}

}  // namespace

RecurrentProblem ValidateRecurrentForDevice(TensorView<const float> q, TensorView<const float> k,
                                            TensorView<const float> v,
                                            const RecurrentOptions& options,
                                            const RecurrentOutputs& outputs) {
  RecurrentProblem p = ValidateInputs(q, k, v, options);
  CompleteRecurrent(p, outputs);
  return p;
}

RecurrentProblem ValidateStepForDevice(TensorView<const float> q, TensorView<const float> k,
                                       TensorView<const float> v, const RecurrentOptions& options,
                                       TensorView<float> state, TensorView<float> output) {
  RecurrentProblem p = ValidateInputs(q, k, v, options);
  CompleteStep(p, state, output);
  p.options.initial_state = state;
  p.outputs.final_state = state;
  return p;
}

RecurrentPlan::RecurrentPlan(const RecurrentProblem& p) : num_units_(p.batch * p.num_kv_heads) {
  const RecurrentOptions& o = p.options;
  params_.q = RowsOf(p.q);
  params_.k = RowsOf(p.k);
  params_.v = RowsOf(p.v);
  params_.output = RowsOf(p.outputs.output);
  params_.final_state = RowsOf(p.outputs.final_state);
  params_.initial_state = RowsOf(o.initial_state);
  params_.erase_key = RowsOf(o.erase_key);
  params_.erase_rate = RowsOf(o.erase_rate);
  params_.bonus = RowsOf(o.bonus);
  params_.log_decay = NumbersOf(o.log_decay);
  params_.beta = NumbersOf(o.beta);
  params_.num_heads = static_cast<int32_t>(p.num_heads);
  params_.num_kv_heads = static_cast<int32_t>(p.num_kv_heads);
  params_.group = static_cast<int32_t>(p.group);
  params_.q_len = static_cast<int32_t>(p.q_len);
  params_.kv_len = static_cast<int32_t>(p.kv_len);
  params_.head_dim = static_cast<int32_t>(p.head_dim);
  params_.features = static_cast<int32_t>(p.feature_dim);
  params_.width = static_cast<int32_t>(p.head_dim_v);
  const int64_t cols = kBlockThreads / lanes();
  // A state without columns of values may still have sums of keys.
  params_.col_blocks = static_cast<int32_t>((std::max<int64_t>(p.head_dim_v, 1) + cols - 1) / cols);
  params_.feature_map = o.feature_map;
  params_.period = o.period;
  params_.scale = p.scale;
  params_.query_factor = p.query_factor;
  params_.key_factor = p.key_factor;
  params_.normalize = o.normalize;
  params_.causal = o.causal;
  params_.delta = o.delta;
  skip_ = arrays_.Add(o.skip);
  lengths_ = arrays_.Add(o.key_lengths);
  if (o.position_offset.empty()) return;
  std::vector<int64_t> positions;
  for (int64_t b = 0; b < p.batch; ++b) positions.push_back(p.Position(b, 0));
  positions_ = arrays_.Add(std::span<const int64_t>(positions));
}

int RecurrentPlan::lanes() const {
  return params_.features <= 4 * kStateRows ? 4 : params_.features <= 8 * kStateRows ? 8 : 16;
}

int64_t RecurrentPlan::num_copies() const {
  return params_.normalize && params_.initial_state.data != nullptr ? num_units_ : 0;
}

RecurrentParams RecurrentPlan::Params(const char* arrays, float* scratch) const {
  RecurrentParams params = params_;
  params.skip = ArrayAt<float>(arrays, skip_);
  params.key_lengths = ArrayAt<int32_t>(arrays, lengths_);
  params.positions = ArrayAt<int64_t>(arrays, positions_);
  params.initial_sums = scratch;
  return params;
}

}  // namespace heed::cuda
