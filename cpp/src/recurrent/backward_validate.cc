// The boundary of RecurrentBackward(): everything that can be wrong with a call is found here.
#include <string>
#include <utility>
#include <vector>

#include "src/from_javascript.h"
#include "src/message.h"
#include "src/recurrent/backward_problem.h"
#include "src/view_checks.h"

namespace heed {
namespace {

[[noreturn]] void Refuse(const char* what) {
  Fail(ErrorCode::kUnsupported, "{} has no gradient in heed", {what});
}

void CheckGradient(const char* name, const TensorView<float>& gradient, const char* of,
                   const TensorView<const float>& tensor) {
  if (!gradient.has_value()) return;
  if (!tensor.has_value()) Fail(ErrorCode::kOption, "{} is given without {}", {name, of});
  CheckOutput(name, StoredOutput(gradient), tensor.shape, Join("as {}", {of}));
}

// Extents of 1 that stand for several get stride 0.
FactorGradient Factor(const char* name, const TensorView<float>& gradient, const Extents& full) {
  FactorGradient factor;
  if (!gradient.has_value()) return factor;
  factor.to = Broadcast(name, gradient, full);
  for (size_t axis = 0; axis < 4; ++axis) {
    factor.is_shared = factor.is_shared || gradient.shape[axis] != full[axis];
  }
  factor.len = gradient.shape[2];
  factor.channels = gradient.shape[3];
  return factor;
}

// As many values as the option of that name, which must be there.
void CheckVector(const char* name, std::span<const float> gradient, const char* of,
                 std::span<const float> option, int64_t count) {
  if (gradient.empty()) return;
  if (option.empty()) Fail(ErrorCode::kOption, "{} is given without {}", {name, of});
  if (gradient.size() == static_cast<size_t>(count)) return;
  Fail(ErrorCode::kShape, "{} has {} values, but {} has {}", {name, gradient.size(), of, count});
}

void CheckAliases(const RecurrentBackwardProblem& g, const RecurrentOptions& given) {
  if (kFromJavaScript) return;
  const RecurrentGradients& to = g.gradients;
  const std::pair<const char*, ViewSpan> outputs[] = {
      {"d_q", SpanOf(to.d_q)},
      {"d_k", SpanOf(to.d_k)},
      {"d_v", SpanOf(to.d_v)},
      {"d_log_decay", SpanOf(to.d_log_decay)},
      {"d_beta", SpanOf(to.d_beta)},
      {"d_bonus", SpanOf(to.d_bonus)},
      {"d_skip", SpanOf(to.d_skip)},
      {"d_erase_key", SpanOf(to.d_erase_key)},
      {"d_erase_rate", SpanOf(to.d_erase_rate)},
      {"d_level_weights", SpanOf(to.d_level_weights)},
      {"d_projection", SpanOf(to.d_projection)},
      {"d_norm_weight", SpanOf(to.d_norm_weight)},
      {"d_norm_bias", SpanOf(to.d_norm_bias)},
      {"d_position_rate", SpanOf(to.d_position_rate)},
      {"d_initial_state", SpanOf(to.d_initial_state)}};
  const RecurrentProblem& p = g.forward;
  const std::pair<const char*, ViewSpan> inputs[] = {
      {"q", SpanOf(p.q)},
      {"k", SpanOf(p.k)},
      {"v", SpanOf(p.v)},
      {"d_out", SpanOf(g.d_out)},
      {"d_final_state", SpanOf(to.d_final_state)},
      {"log_decay", SpanOf(given.log_decay)},
      {"beta", SpanOf(given.beta)},
      {"bonus", SpanOf(given.bonus)},
      {"erase_key", SpanOf(given.erase_key)},
      {"erase_rate", SpanOf(given.erase_rate)},
      {"level_weights", SpanOf(given.level_weights)},
      {"projection", SpanOf(given.projection)},
      {"skip", SpanOf(given.skip)},
      {"key_lengths", SpanOf(given.key_lengths)},
      {"position_offset", SpanOf(given.position_offset)},
      {"norm_weight", SpanOf(given.norm_weight)},
      {"norm_bias", SpanOf(given.norm_bias)},
      {"position_rate", SpanOf(given.position_rate)},
      {"initial_state", SpanOf(given.initial_state)}};
  for (size_t i = 0; i < std::size(outputs); ++i) {
    for (const auto& [name, input] : inputs) {
      CheckNoAlias(outputs[i].first, outputs[i].second, name, input);
    }
    for (size_t j = 0; j < i; ++j) {
      CheckNoAlias(outputs[i].first, outputs[i].second, outputs[j].first, outputs[j].second);
    }
  }
}

}  // namespace

void CheckIsDifferentiable(const RecurrentOptions& o) {
  if (!o.level_weights.has_value()) return;
  const bool channels = o.log_decay.has_value() && o.log_decay.shape[3] != 1;
  if (channels || o.feature_map != FeatureMap::kIdentity) {
    Refuse("level_weights with features or log_decay of channels");
  }
}

RecurrentBackwardProblem ValidateRecurrentBackward(const TensorView<const float>& q,
                                                   const TensorView<const float>& k,
                                                   const TensorView<const float>& v,
                                                   const TensorView<const float>& d_out,
                                                   const RecurrentOptions& options,
                                                   const RecurrentGradients& gradients) {
  CheckIsDifferentiable(options);
  RecurrentBackwardProblem g;
  g.forward = ValidateRecurrent(q, k, v, options);
  if (options.feature_mod && !gradients.feature_mod_backward) {
    Fail(ErrorCode::kUnsupported, "feature_mod has no gradient without feature_mod_backward");
  }
  RecurrentProblem& p = g.forward;
  p.options.chunk_len = kMaxChunkLen;
  g.d_out = d_out;
  g.gradients = gradients;
  CheckInput("d_out", d_out);
  CheckShape("d_out", d_out.shape, {p.batch, p.num_heads, p.q_len, p.head_dim_v},
             "[batch, num_heads, q_len, head_dim_v]");
  if (gradients.d_final_state.has_value()) {
    CheckInput("d_final_state", gradients.d_final_state);
    CheckShape("d_final_state", gradients.d_final_state.shape, StateShape(p), StateMeaning(p));
  }
  CheckGradient("d_q", gradients.d_q, "q", q);
  CheckGradient("d_k", gradients.d_k, "k", k);
  CheckGradient("d_v", gradients.d_v, "v", v);
  CheckGradient("d_log_decay", gradients.d_log_decay, "log_decay", options.log_decay);
  CheckGradient("d_beta", gradients.d_beta, "beta", options.beta);
  CheckGradient("d_bonus", gradients.d_bonus, "bonus", options.bonus);
  CheckGradient("d_erase_key", gradients.d_erase_key, "erase_key", options.erase_key);
  CheckGradient("d_erase_rate", gradients.d_erase_rate, "erase_rate", options.erase_rate);
  CheckGradient("d_level_weights", gradients.d_level_weights, "level_weights",
                options.level_weights);
  CheckGradient("d_projection", gradients.d_projection, "projection", options.projection);
  if (gradients.d_initial_state.has_value()) {
    CheckOutput("d_initial_state", StoredOutput(gradients.d_initial_state), StateShape(p),
                StateMeaning(p));
  }
  CheckVector("d_skip", gradients.d_skip, "skip", options.skip, p.num_heads);
  const int64_t norms = p.num_kv_heads * p.head_dim;
  CheckVector("d_norm_weight", gradients.d_norm_weight, "norm_weight", options.norm_weight, norms);
  CheckVector("d_norm_bias", gradients.d_norm_bias, "norm_bias", options.norm_bias, norms);
  CheckVector("d_position_rate", gradients.d_position_rate, "position_rate", options.position_rate,
              options.mini_batch);
  CheckAliases(g, options);
  const int64_t channels = p.decays_channels ? p.feature_dim : 1;
  g.d_log_decay =
      Factor("d_log_decay", gradients.d_log_decay, {p.batch, p.num_kv_heads, p.kv_len, channels});
  g.d_beta = Factor("d_beta", gradients.d_beta, {p.batch, p.num_kv_heads, p.kv_len, 1});
  return g;
}

}  // namespace heed
