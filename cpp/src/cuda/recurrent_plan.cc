#include "src/cuda/recurrent_plan.h"

#include <algorithm>

#include "src/cuda/refuse.h"
#include "src/message.h"

namespace heed::cuda {
namespace {

void RefuseOptions(const RecurrentOptions& o) {
  RefuseWhen(o.feature_map == FeatureMap::kUser, "feature_mod", "RecurrentAttention");
}

void CheckSize(const RecurrentProblem& p) {
  RefuseAbove(kMaxDeviceCount, "q_len", p.q_len);
  RefuseAbove(kMaxDeviceCount, "kv_len", p.kv_len);
  RefuseAbove(kMaxDeviceCount, "batch * num_heads", p.batch * p.num_heads);
  RefuseAbove(kMaxDeviceCount, "head_dim_v", p.head_dim_v);
  if (p.learns()) {
    if (p.head_dim <= kMaxModelDim) return;
    Fail(ErrorCode::kUnsupported, "q has head_dim {}; mini_batch on the GPU takes up to {}",
         {p.head_dim, kMaxModelDim});
  }
  if (p.feature_dim > kMaxFeatures) {
    Fail(
        ErrorCode::kUnsupported,
        "q has head_dim {}, which makes {} features; recurrent attention on the GPU takes up to {}",
        {p.head_dim, p.feature_dim, kMaxFeatures});
  }
}

}  // namespace

RecurrentProblem ValidateInputsForDevice(const TensorView<const float>& q,
                                         const TensorView<const float>& k,
                                         const TensorView<const float>& v,
                                         RecurrentOptions options) {
  RefuseOptions(options);
  const TensorView<const float> log_decay = options.log_decay;
  options.log_decay = {};
  RecurrentProblem p = ValidateRecurrent(q, k, v, options);
  p.options.log_decay = log_decay;
  SetLogDecay(p);
  CheckSize(p);
  return p;
}

RecurrentProblem ValidateRecurrentForDevice(TensorView<const float> q, TensorView<const float> k,
                                            TensorView<const float> v,
                                            const RecurrentOptions& options,
                                            const RecurrentOutputs& outputs) {
  RecurrentProblem p = ValidateInputsForDevice(q, k, v, options);
  CompleteRecurrent(p, outputs);
  return p;
}

RecurrentProblem ValidateStepForDevice(TensorView<const float> q, TensorView<const float> k,
                                       TensorView<const float> v, const RecurrentOptions& options,
                                       TensorView<float> state, TensorView<float> output) {
  RecurrentProblem p = ValidateInputsForDevice(q, k, v, options);
  CompleteStep(p, state, output);
  p.options.initial_state = state;
  p.outputs.final_state = state;
  return p;
}

RecurrentPlan::RecurrentPlan(const RecurrentProblem& p)
    : num_units_(p.batch * p.num_kv_heads), state_rows_(StateShape(p)[2]) {
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
  params_.projection = RowsOf(o.projection);
  params_.level_weights = RowsOf(o.level_weights);
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
  params_.sum_cols = (o.normalize ? 1 : 0) + (p.has_peaks() ? 1 : 0);
  params_.feature_map = o.feature_map;
  params_.period = o.period;
  params_.scale = p.scale;
  params_.query_factor = p.query_factor;
  params_.key_factor = p.key_factor;
  params_.normalize = o.normalize;
  params_.causal = o.causal;
  params_.delta = o.delta;
  SetForm(p);
  skip_ = arrays_.Add(o.skip);
  lengths_ = arrays_.Add(o.key_lengths);
  norm_weight_ = arrays_.Add(o.norm_weight);
  norm_bias_ = arrays_.Add(o.norm_bias);
  position_rate_ = arrays_.Add(o.position_rate);
  if (o.position_offset.empty()) return;
  std::vector<int64_t> positions;
  for (int64_t b = 0; b < p.batch; ++b) positions.push_back(p.Position(b, 0));
  positions_ = arrays_.Add(std::span<const int64_t>(positions));
}

void RecurrentPlan::SetForm(const RecurrentProblem& p) {
  params_.num_states = static_cast<int32_t>(p.num_states);
  params_.mini_batch = p.options.mini_batch;
  params_.norm_epsilon = kInnerNormEpsilon;
  if (p.has_peaks()) form_ = RecurrentForm::kRandom;
  if (p.has_levels()) form_ = RecurrentForm::kLevels;
  if (p.learns()) form_ = RecurrentForm::kLearning;
  const int64_t cols = p.learns() ? std::max<int64_t>(p.head_dim, 1) : kBlockThreads / lanes();
  // A state without columns of values may still have sums of keys.
  params_.col_blocks = static_cast<int32_t>((std::max<int64_t>(p.head_dim_v, 1) + cols - 1) / cols);
}

int RecurrentPlan::lanes() const {
  return params_.features <= 4 * kStateRows ? 4 : params_.features <= 8 * kStateRows ? 8 : 16;
}

int64_t RecurrentPlan::num_copies() const {
  return params_.normalize && params_.initial_state.data != nullptr ? num_units_ : 0;
}

int64_t RecurrentPlan::scratch_floats() const {
  const bool in_memory = form_ == RecurrentForm::kLevels || form_ == RecurrentForm::kLearning;
  if (!in_memory) return num_copies() * params_.features * params_.sum_cols;
  if (params_.final_state.data != nullptr) return 0;
  return num_units_ * state_rows_ * params_.width;
}

RecurrentParams RecurrentPlan::Params(const char* arrays, float* scratch) const {
  RecurrentParams params = params_;
  const int64_t width = params.width, unit = state_rows_ * width;
  params.states = {scratch, {params.num_kv_heads * unit, unit, width}};
  if (params.final_state.data != nullptr) params.states = params.final_state;
  params.norm_weight = ArrayAt<float>(arrays, norm_weight_);
  params.norm_bias = ArrayAt<float>(arrays, norm_bias_);
  params.position_rate = ArrayAt<float>(arrays, position_rate_);
  params.skip = ArrayAt<float>(arrays, skip_);
  params.key_lengths = ArrayAt<int32_t>(arrays, lengths_);
  params.positions = ArrayAt<int64_t>(arrays, positions_);
  params.initial_sums = scratch;
  return params;
}

}  // namespace heed::cuda
