// The boundary of RecurrentBackward(): everything that can be wrong with a call is found here.
#include <string>
#include <utility>
#include <vector>

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

void CheckSkipGradient(const RecurrentProblem& p, std::span<float> d_skip) {
  if (d_skip.empty()) return;
  if (p.options.skip.empty()) Fail(ErrorCode::kOption, "d_skip is given without skip");
  if (d_skip.size() == p.options.skip.size()) return;
  Fail(ErrorCode::kShape, "d_skip has {} values, but skip has {}",
       {d_skip.size(), p.options.skip.size()});
}

void CheckAliases(const RecurrentBackwardProblem& g, const RecurrentOptions& given) {
  const RecurrentGradients& to = g.gradients;
  const std::span<float> skip = to.d_skip;
  const ViewSpan skip_span = SpanOf(skip.data(), {1, 1, 1, static_cast<int64_t>(skip.size())},
                                    {0, 0, 0, 1}, sizeof(float));
  const std::pair<const char*, ViewSpan> outputs[] = {
      {"d_q", SpanOf(to.d_q)},       {"d_k", SpanOf(to.d_k)},
      {"d_v", SpanOf(to.d_v)},       {"d_log_decay", SpanOf(to.d_log_decay)},
      {"d_beta", SpanOf(to.d_beta)}, {"d_bonus", SpanOf(to.d_bonus)},
      {"d_skip", skip_span},         {"d_initial_state", SpanOf(to.d_initial_state)}};
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
  if (o.feature_map == FeatureMap::kUser) Refuse("feature_mod");
  if (o.feature_map == FeatureMap::kRandom) Refuse("feature_map kRandom");
  if (o.erase_key.has_value()) Refuse("erase_key");
  if (o.level_weights.has_value()) Refuse("level_weights");
  if (o.mini_batch > 0) Refuse("mini_batch");
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
  if (gradients.d_initial_state.has_value()) {
    CheckOutput("d_initial_state", StoredOutput(gradients.d_initial_state), StateShape(p),
                StateMeaning(p));
  }
  CheckSkipGradient(p, gradients.d_skip);
  CheckAliases(g, options);
  const int64_t channels = p.decays_channels ? p.feature_dim : 1;
  g.d_log_decay =
      Factor("d_log_decay", gradients.d_log_decay, {p.batch, p.num_kv_heads, p.kv_len, channels});
  g.d_beta = Factor("d_beta", gradients.d_beta, {p.batch, p.num_kv_heads, p.kv_len, 1});
  return g;
}

}  // namespace heed
