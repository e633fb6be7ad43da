#include "src/recurrent/backward_sums.h"

namespace heed {

SharedSums::SharedSums(const RecurrentBackwardProblem& g) : g_(g), p_(g.forward) {
  const auto resize = [&](ScratchVector<double>& sums, int64_t each, bool wanted) {
    if (wanted) sums.assign(static_cast<size_t>(Units() * each), 0.0);
  };
  const auto cells = [](const FactorGradient& factor) { return factor.len * factor.channels; };
  resize(log_decay_, cells(g.d_log_decay), g.d_log_decay.is_shared);
  resize(beta_, cells(g.d_beta), g.d_beta.is_shared);
  resize(skip_, p_.group, !g.gradients.d_skip.empty());
  resize(bonus_, p_.group * p_.head_dim, g.gradients.d_bonus.has_value());
  resize(norm_weight_, p_.head_dim, !g.gradients.d_norm_weight.empty());
  resize(norm_bias_, p_.head_dim, !g.gradients.d_norm_bias.empty());
  resize(position_rate_, p_.options.mini_batch, !g.gradients.d_position_rate.empty());
}

HeadGradients SharedSums::Of(int64_t unit) {
  return {Part(log_decay_, unit),    Part(beta_, unit),        Part(skip_, unit),
          Part(bonus_, unit),        Part(norm_weight_, unit), Part(norm_bias_, unit),
          Part(position_rate_, unit)};
}

void SharedSums::Write() {
  WriteFactor(g_.d_log_decay, log_decay_);
  WriteFactor(g_.d_beta, beta_);
  for (size_t h = 0; h < g_.gradients.d_skip.size(); ++h) {
    g_.gradients.d_skip[h] = OverBatch(skip_, static_cast<int64_t>(h), 1, 0);
  }
  const TensorView<float>& d_bonus = g_.gradients.d_bonus;
  for (int64_t h = 0; h < p_.num_heads && d_bonus.has_value(); ++h) {
    for (int64_t c = 0; c < p_.head_dim; ++c) {
      d_bonus(0, h, 0, c) = OverBatch(bonus_, h, p_.head_dim, c);
    }
  }
  WriteNorm(g_.gradients.d_norm_weight, norm_weight_);
  WriteNorm(g_.gradients.d_norm_bias, norm_bias_);
  for (size_t n = 0; n < g_.gradients.d_position_rate.size(); ++n) {
    double sum = 0;
    for (int64_t unit = 0; unit < Units(); ++unit) sum += Part(position_rate_, unit)[n];
    g_.gradients.d_position_rate[n] = static_cast<float>(sum);
  }
}

std::span<double> SharedSums::Part(ScratchVector<double>& sums, int64_t unit) const {
  const size_t each = sums.empty() ? 0 : sums.size() / static_cast<size_t>(Units());
  return {sums.data() + static_cast<size_t>(unit) * each, each};
}

// Of a query head, which has `each` numbers in the sums of its KV head: number `at`.
float SharedSums::OverBatch(ScratchVector<double>& sums, int64_t head, int64_t each,
                            int64_t at) const {
  double sum = 0;
  for (int64_t b = 0; b < p_.batch; ++b) {
    const std::span<double> part = Part(sums, b * p_.num_kv_heads + head / p_.group);
    sum += part[static_cast<size_t>(head % p_.group * each + at)];
  }
  return static_cast<float>(sum);
}

void SharedSums::WriteFactor(const FactorGradient& factor, ScratchVector<double>& sums) const {
  if (!factor.is_shared) return;
  const Extents& strides = factor.to.strides;
  const int64_t batch = strides[0] == 0 ? 1 : p_.batch;
  const int64_t heads = strides[1] == 0 ? 1 : p_.num_kv_heads;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t n = 0; n < factor.len * factor.channels; ++n) {
        double sum = 0;
        for (int64_t unit = 0; unit < Units(); ++unit) {
          const bool is_of = (batch == 1 || unit / p_.num_kv_heads == b) &&
                             (heads == 1 || unit % p_.num_kv_heads == h);
          if (is_of) sum += Part(sums, unit)[static_cast<size_t>(n)];
        }
        factor.to(b, h, n / factor.channels, n % factor.channels) = static_cast<float>(sum);
      }
    }
  }
}

// [num_kv_heads, head_dim], summed over the batch.
void SharedSums::WriteNorm(std::span<float> to, ScratchVector<double>& sums) const {
  for (size_t n = 0; n < to.size(); ++n) {
    const int64_t h = static_cast<int64_t>(n) / p_.head_dim;
    const size_t e = n % static_cast<size_t>(p_.head_dim);
    double sum = 0;
    for (int64_t b = 0; b < p_.batch; ++b) sum += Part(sums, b * p_.num_kv_heads + h)[e];
    to[n] = static_cast<float>(sum);
  }
}

}  // namespace heed
