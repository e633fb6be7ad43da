// Gradients of the tokens of a chunk, on their way to the caller: through features, factors and
// strengths.
#if defined(HEED_RECURRENT_BACKWARD_STORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_RECURRENT_BACKWARD_STORE_INL_H_
#undef HEED_RECURRENT_BACKWARD_STORE_INL_H_
#else
#define HEED_RECURRENT_BACKWARD_STORE_INL_H_
#endif

#include <algorithm>
#include <span>

#include "hwy/highway.h"
#include "src/recurrent/backward_chunk-inl.h"
#include "src/recurrent/backward_problem.h"
#include "src/recurrent/backward_sums.h"
#include "src/recurrent/feature_gradients-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class BackwardStore {
 public:
  BackwardStore(const RecurrentPlan& plan, const RecurrentBackwardProblem& problem, int64_t batch,
                int64_t kv_head, RecurrentScratch& scratch, BackwardScratch& backward,
                const HeadGradients& sums)
      : plan_(plan),
        p_(*plan.problem),
        g_(problem),
        b_(batch),
        h_(kv_head),
        s_(scratch),
        back_(backward),
        sums_(sums) {}

  // Where row c, column e of a state lies.
  size_t AtState(size_t c, size_t e) const {
    return e / PanelCols() * PanelCols() * plan_.rows + c * PanelCols() + e % PanelCols();
  }

  // to += what a row of features passes on by its own gradient: of each channel, or of all.
  void Pass(const float* row, const float* gradient, float* to) const {
    const DF d;
    VF sum = hn::Zero(d);
    for (size_t c = 0; c < plan_.rows; c += hn::Lanes(d)) {
      const VF passed = hn::Mul(hn::Load(d, row + c), hn::Load(d, gradient + c));
      if (p_.decays_channels) {
        hn::Store(hn::Add(hn::Load(d, to + c), passed), d, to + c);
      } else {
        sum = hn::Add(sum, passed);
      }
    }
    if (!p_.decays_channels) *to += hn::ReduceSum(d, sum);
  }

  // d_reader, of a query head.
  void Queries(int64_t first, size_t count, int64_t head) const {
    const TensorView<float>& to = g_.gradients.d_q;
    for (size_t i = 0; i < count && to.has_value() && p_.head_dim > 0; ++i) {
      const int64_t t = first + static_cast<int64_t>(i);
      FeatureGradient(g_, Side::kQuery, &p_.q(b_, head, t, 0), {b_, head, t},
                      back_.d_reader.get() + i * plan_.rows, &to(b_, head, t, 0));
    }
  }

  void Tokens(int64_t first, size_t count) const {
    if (g_.d_log_decay.has_value()) Factors(first, count);
    for (size_t i = 0; i < count; ++i) {
      const int64_t t = first + static_cast<int64_t>(i);
      float* write = WriteOf(i);
      const float beta = s_.betas.get()[i];
      if (g_.d_beta.has_value()) g_.d_beta.Add(sums_.beta, {b_, h_, t}, 0, Strength(t, i, write));
      if (beta != 1.0f) ScaleRow(write, plan_.cols, beta, write);
      if (!p_.options.skip.empty() || p_.reads_first()) OwnValues(t, i, write);
      if (g_.gradients.d_v.has_value() && p_.head_dim_v > 0) {
        std::copy_n(write, p_.head_dim_v, &g_.gradients.d_v(b_, h_, t, 0));
      }
      Key(t, i);
    }
  }

  // What arrives at the first state; zeros for tokens that do not exist.
  void Finish() const {
    const RecurrentGradients& to = g_.gradients;
    for (size_t c = 0; c < plan_.dim && to.d_initial_state.has_value(); ++c) {
      for (size_t e = 0; e < static_cast<size_t>(p_.state_cols); ++e) {
        to.d_initial_state(b_, h_, static_cast<int64_t>(c), static_cast<int64_t>(e)) =
            back_.d_state.get()[AtState(c, e)];
      }
    }
    for (int64_t t = p_.KeyLength(b_); t < p_.kv_len; ++t) {
      for (const TensorView<float>& view : {to.d_k, to.d_v}) {
        if (!view.has_value() || view.shape[3] == 0) continue;
        std::fill_n(&view(b_, h_, t, 0), view.shape[3], 0.0f);
      }
      for (const FactorGradient* factor : {&g_.d_log_decay, &g_.d_beta}) {
        if (!factor->has_value() || factor->is_shared) continue;
        for (int64_t c = 0; c < factor->channels; ++c) factor->to(b_, h_, t, c) = 0;
      }
    }
  }

 private:
  // d_writes of a token, as a row.
  float* WriteOf(size_t i) const {
    float* row = back_.write_rows.get() + i * plan_.cols;
    for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
      const float* from = back_.d_writes.get() + e * kChunkRows + i * PanelCols();
      std::copy_n(from, PanelCols(), row + e);
    }
    return row;
  }

  // d_beta: what arrives at the write times what beta is a factor of.
  float Strength(int64_t t, size_t i, const float* write) const {
    double sum = 0;
    for (size_t e = 0; e < static_cast<size_t>(p_.state_cols); ++e) {
      const bool is_value = e < static_cast<size_t>(p_.head_dim_v);
      const float given = is_value ? p_.v(b_, h_, t, static_cast<int64_t>(e)) : 1.0f;
      const size_t at = e / PanelCols() * PanelCols() * kChunkRows + i * PanelCols();
      const float value = p_.erases() ? back_.values.get()[at + e % PanelCols()] : given;
      sum += double{write[e]} * double{value};
    }
    return static_cast<float>(sum);
  }

  void Key(int64_t t, size_t i) const {
    const DF d;
    const TensorView<float>& to = g_.gradients.d_k;
    if (!to.has_value() || p_.head_dim == 0) return;
    float* row = back_.row.get();
    for (size_t c = 0; c < plan_.rows; c += hn::Lanes(d)) {
      const size_t at = i * plan_.rows + c;
      const VF sum =
          hn::Add(hn::Load(d, back_.d_met.get() + at), hn::Load(d, back_.d_keys.get() + at));
      hn::Store(sum, d, row + c);
    }
    FeatureGradient(g_, Side::kKey, &p_.k(b_, h_, t, 0), {b_, h_, t}, row, &to(b_, h_, t, 0));
  }

  // A token's own value, which answers get times skip or what query and key give by the bonus.
  void OwnValues(int64_t t, size_t i, float* write) const {
    const RecurrentOptions& o = p_.options;
    for (int64_t g = 0; g < p_.group; ++g) {
      const int64_t head = h_ * p_.group + g;
      float factor = o.skip.empty() ? 0.0f : o.skip[static_cast<size_t>(head)];
      for (int64_t c = 0; c < p_.head_dim && p_.reads_first(); ++c) {
        factor += p_.scale * p_.q(b_, head, t, c) * o.bonus(0, head, 0, c) * p_.k(b_, h_, t, c);
      }
      double d_factor = 0;
      for (int64_t e = 0; e < p_.head_dim_v; ++e) {
        const float arriving = g_.d_out(b_, head, t, e);
        write[e] += factor * arriving;
        d_factor += double{arriving} * double{p_.v(b_, h_, t, e)};
      }
      if (!sums_.skip.empty()) sums_.skip[static_cast<size_t>(g)] += d_factor;
      if (p_.reads_first()) Bonus(t, i, g, static_cast<float>(d_factor) * p_.scale);
    }
  }

  void Bonus(int64_t t, size_t i, int64_t g, float d_factor) const {
    const int64_t head = h_ * p_.group + g;
    for (int64_t c = 0; c < p_.head_dim; ++c) {
      const float q = p_.q(b_, head, t, c), k = p_.k(b_, h_, t, c);
      const float bonus = p_.options.bonus(0, head, 0, c);
      if (g_.gradients.d_q.has_value()) g_.gradients.d_q(b_, head, t, c) += d_factor * bonus * k;
      back_.d_keys.get()[i * plan_.rows + static_cast<size_t>(c)] += d_factor * bonus * q;
      if (sums_.bonus.empty()) continue;
      sums_.bonus[static_cast<size_t>(g * p_.head_dim + c)] += double{d_factor * q * k};
    }
  }

  // The logarithm of the factor of token t gets what passes it: from the state before the chunk to
  // reads from t on and to the state after it, and from writes before t to reads from t on and to
  // that state. Of what earlier tokens gave to all reads, what reads before t got is taken off.
  void Factors(int64_t first, size_t count) const {
    const size_t step = plan_.decay_step;
    const size_t channels = p_.decays_channels ? plan_.dim : 1;
    float* wrote = back_.wrote.get();
    for (size_t i = 0; i < count; ++i) {
      Pass(s_.keys.get() + i * plan_.rows, back_.d_met.get() + i * plan_.rows, wrote + i * step);
    }
    for (size_t c = 0; c < channels; ++c) {
      float through = Through(c, count);
      for (size_t at = c; at < c + count * step; at += step) {
        const float own = wrote[at] - back_.met.get()[at];
        wrote[at] = through;
        through += own;
      }
      float reads = 0;
      for (size_t t = count; t-- > 0;) {
        const size_t at = t * step + c;
        reads += back_.reads.get()[at];
        // A factor of 0 stays 0, whatever its logarithm does.
        const bool forgets = s_.decays.get()[at] == 0.0f;
        g_.d_log_decay.Add(sums_.log_decay, {b_, h_, first + static_cast<int64_t>(t)},
                           static_cast<int64_t>(c), forgets ? 0.0f : wrote[at] + reads);
      }
    }
  }

  // What the state before the chunk gives to the one after it, through all factors.
  float Through(size_t channel, size_t count) const {
    double sum = 0;
    const size_t begin = p_.decays_channels ? channel : 0;
    const size_t end = p_.decays_channels ? channel + 1 : plan_.dim;
    for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
      for (size_t at = AtState(begin, e); at < AtState(end, e); ++at) {
        sum += double{s_.state.get()[at]} * double{back_.d_state.get()[at]};
      }
    }
    for (size_t t = 0; t < count; ++t) {
      sum *= double{s_.decays.get()[t * plan_.decay_step + channel]};
    }
    return static_cast<float>(sum);
  }

  const RecurrentPlan& plan_;
  const RecurrentProblem& p_;
  const RecurrentBackwardProblem& g_;
  int64_t b_, h_;
  RecurrentScratch& s_;
  BackwardScratch& back_;
  HeadGradients sums_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_RECURRENT_BACKWARD_STORE_INL_H_
