#include "src/recurrent/backward_factors.h"

#include <algorithm>

namespace heed {
namespace {

template <class T>
TensorView<T> Rows(TensorView<T> view, int64_t first, int64_t count) {
  view.data += first * view.strides[2];
  view.shape[2] = count;
  return view;
}

}  // namespace

TokenFactors::TokenFactors(const RecurrentBackwardProblem& g, int64_t segment)
    : g_(g), p_(g.forward), sums_(g) {
  const Extents gates = {p_.batch, p_.num_kv_heads, segment, p_.feature_dim};
  if (decays()) gates_ = OwnedTensor(gates);
  if (g.d_log_decay.has_value()) d_gates_ = OwnedTensor(gates);
  if (g.d_beta.has_value()) d_betas_ = OwnedTensor({p_.batch, p_.num_kv_heads, segment, 1});
  d_skips_.resize(g.gradients.d_skip.size());
}

void TokenFactors::Give(int64_t first, const TensorView<const float>& decays,
                        RecurrentOptions& to) {
  const int64_t count = decays.shape[2];
  const RecurrentOptions& o = p_.options;
  to.log_decay = decays;
  if (o.beta.has_value()) to.beta = Rows(o.beta, first, count);
  if (to.causal) to.skip = o.skip;
  if (!this->decays()) return;
  const TensorView<float> gates = Rows(gates_.view(), 0, count);
  for (int64_t b = 0; b < p_.batch; ++b) {
    for (int64_t h = 0; h < p_.num_kv_heads; ++h) {
      for (int64_t i = 0; i < count; ++i) {
        const bool exists = first + i < p_.KeyLength(b);
        for (int64_t f = 0; f < p_.feature_dim; ++f) {
          const int64_t channel = p_.decays_channels ? f : 0;
          const float gate = exists ? o.log_decay(b, h, first + i, channel) : 0.0f;
          gates(b, h, i, f) = decays(b, h, i, f) + gate;
        }
      }
    }
  }
  to.log_decay = gates;
}

void TokenFactors::Want(int64_t count, RecurrentGradients& to) {
  if (g_.d_log_decay.has_value()) to.d_log_decay = Rows(d_gates_.view(), 0, count);
  if (g_.d_beta.has_value()) to.d_beta = Rows(d_betas_.view(), 0, count);
  to.d_skip = d_skips_;
}

void TokenFactors::Add(int64_t first, int64_t count) {
  for (int64_t unit = 0; unit < p_.batch * p_.num_kv_heads; ++unit) {
    const int64_t b = unit / p_.num_kv_heads, h = unit % p_.num_kv_heads;
    const HeadGradients sums = sums_.Of(unit);
    for (int64_t i = 0; i < count; ++i) {
      const TokenPlace at = {b, h, first + i};
      if (g_.d_beta.has_value()) g_.d_beta.Add(sums.beta, at, 0, d_betas_.view()(b, h, i, 0));
      if (!g_.d_log_decay.has_value()) continue;
      double total = 0;
      for (int64_t f = 0; f < p_.feature_dim; ++f) {
        const double gate = double{d_gates_.view()(b, h, i, f)};
        total += gate;
        if (p_.decays_channels) g_.d_log_decay.Add(sums.log_decay, at, f, gate);
      }
      if (!p_.decays_channels) g_.d_log_decay.Add(sums.log_decay, at, 0, total);
    }
  }
  // The call has summed them over batch entries.
  for (size_t n = 0; n < d_skips_.size() && p_.batch > 0; ++n) {
    const size_t group = static_cast<size_t>(p_.group);
    sums_.Of(static_cast<int64_t>(n / group)).skip[n % group] += double{d_skips_[n]};
  }
}

}  // namespace heed
