// Backward of a state that learns: through the steps of gradient descent that tokens are, and
// through the layer norm in them, whose slope is differentiated once more. With x = (k, 1),
// z = W^T x of the model that the mini-batch began with, n its norm, 1 / sqrt(variance + epsilon)
// = i, r = k + w n + b - v, s = w r and the slope g = i (s - mean s - n mean(s n)):
//
//   W' = W - beta x g^T:  dbeta = -x . dW g,  dx = -beta dW g,  dg = -beta dW^T x
//   ds = i (dg - mean dg - n mean(dg n)),  dn = -i (dg mean(s n) + s mean(dg n)),
//   di = sum dg g / i,  dr = w ds,  dw = ds (r + w n),  dn += w^2 ds
//   dz = i (dn - mean dn - n mean(dn n)) - di i^2 n / count
//
// With position_rate r, B the model that the mini-batch began with and U that after all its steps,
// queries ask M = B + r (U - B):  dB += (1 - r) dM,  dU += r dM,  dr = sum dM (U - B).
#include <algorithm>
#include <cmath>

#include "src/compose/rows.h"
#include "src/recurrent/backward_tokens.h"
#include "src/recurrent/state_rows.h"

namespace heed {
namespace {

using Row = ScratchVector<double>;

// A state: the model that the mini-batch began with, then the current one, each [head_dim + 1]
// [head_dim], the bias last.
struct LearningMemory {
  TokenStates states;
  ScratchVector<float> d_state;
  // [head_dim]
  Row normed, residual, d_slope, d_row, d_key;
  ScratchVector<float> given, slope, d_given;  // by a model, and to it
  ScratchVector<float> input, factors, dots;   // [head_dim + 1]: x, and of rows of a model
  ScratchVector<float> between;                // a model, with position_rate

  explicit LearningMemory(const RecurrentProblem& p)
      : states(StateSize(p), p.kv_len), d_state(StateSize(p)) {
    for (Row* row : {&normed, &residual, &d_slope, &d_row, &d_key}) {
      row->resize(static_cast<size_t>(p.head_dim));
    }
    for (auto* row : {&given, &slope, &d_given}) row->resize(static_cast<size_t>(p.head_dim));
    for (auto* row : {&input, &factors, &dots}) row->resize(static_cast<size_t>(p.head_dim + 1));
    if (!p.options.position_rate.empty()) between.resize(StateSize(p) / 2);
  }
  static size_t StateSize(const RecurrentProblem& p) {
    return static_cast<size_t>(2 * (p.head_dim + 1) * p.head_dim);
  }
};

class LearningRule final : public TokenRule {
 public:
  LearningRule(const RecurrentBackwardProblem& g, int64_t unit, const HeadGradients& sums,
               LearningMemory& memory)
      : TokenRule(g, unit, sums),
        m_(memory),
        dim_(static_cast<size_t>(p_.head_dim)),
        model_((dim_ + 1) * dim_) {}

  void Run() { RunTokens(m_.states, m_.d_state.data()); }

  void Advance(int64_t t, const float* before, float* after) override {
    if (after != before) std::copy_n(before, 2 * model_, after);
    if (Begins(t)) BeginMiniBatch(t, after);
    LoadSlope(t, after);
    const float rate = -static_cast<float>(Beta(t));
    for (size_t c = 0; c <= dim_; ++c) m_.factors[c] = rate * m_.input[c];
    AddOuter(m_.factors.data(), m_.slope.data(), Model(after + model_));
  }

  void Retreat(int64_t t, const float* before, const float* after) override {
    ReadAll(t, t, after);
    LoadSlope(t, after);
    Learn(t);
    PassSlope(t);
    PassModel(t, after);
    if (Begins(t)) EndMiniBatch(t, before);
  }

  // Queries beyond the tokens read the last model.
  void ReadLast(const float* state) override {
    for (int64_t t = Length(); t < p_.q_len; ++t) ReadAll(t, Length() - 1, state);
  }

 private:
  bool Begins(int64_t t) const { return p_.Position(b_, t) % p_.options.mini_batch == 0; }
  bool HasRates() const { return !p_.options.position_rate.empty(); }

  // The first token is t; the models are those after the token before it.
  void BeginMiniBatch(int64_t t, float* models) const {
    float* const now = models + model_;
    if (HasRates()) {
      const float rate = p_.PositionRate(b_, t - 1);
      for (size_t n = 0; n < model_; ++n) now[n] = models[n] + rate * (now[n] - models[n]);
    }
    std::copy_n(now, model_, models);
  }
  // Backwards: what arrives at the model that it began with came from those of `before`.
  void EndMiniBatch(int64_t t, const float* before) {
    const float rate = p_.PositionRate(b_, t - 1);
    double d_rate = 0;
    for (size_t n = 0; n < model_; ++n) {
      const float arriving = DBegun()[n] + DNow()[n];
      DNow()[n] = rate * arriving;
      DBegun()[n] = HasRates() ? (1 - rate) * arriving : 0;
      if (!sums_.position_rate.empty()) {
        d_rate += double{arriving} * (double{before[model_ + n]} - double{before[n]});
      }
    }
    AddToRate(t - 1, d_rate);
  }
  void AddToRate(int64_t t, double d_rate) const {
    if (!sums_.position_rate.empty()) sums_.position_rate[p_.Place(b_, t)] += d_rate;
  }

  // The queries of position t, of the model at the place of token `place`.
  void ReadAll(int64_t t, int64_t place, const float* models) {
    const float rate = p_.PositionRate(b_, place);
    for (size_t n = 0; n < m_.between.size(); ++n) {
      m_.between[n] = models[n] + rate * (models[model_ + n] - models[n]);
    }
    const float* const asked = HasRates() ? m_.between.data() : models + model_;
    for (int64_t head = FirstHead(); head < FirstHead() + p_.group; ++head) {
      Read(t, head, asked);
      if (HasRates()) {
        PassRate(rate, place, models);
      } else {
        AddOuter(m_.input.data(), m_.d_given.data(), Model(DNow()));
      }
    }
  }
  // From the model between the two, for the last query that was read.
  void PassRate(float rate, int64_t place, const float* models) {
    const auto add = [&](float share, float* d_model) {
      for (size_t c = 0; c <= dim_; ++c) m_.factors[c] = share * m_.input[c];
      AddOuter(m_.factors.data(), m_.d_given.data(), Model(d_model));
    };
    add(rate, DNow());
    add(1 - rate, DBegun());
    if (sums_.position_rate.empty()) return;
    const auto meet = [&](const float* model) {
      SumRows(Model(model), m_.input.data(), m_.given.data());
      double sum = 0;
      for (size_t e = 0; e < dim_; ++e) sum += double{m_.given[e]} * double{m_.d_given[e]};
      return sum;
    };
    AddToRate(place, meet(models + model_) - meet(models));
  }
  float* DBegun() { return m_.d_state.data(); }
  float* DNow() { return m_.d_state.data() + model_; }

  template <class T>
  StateRows<T> Model(T* model) const {
    return {model, p_.head_dim + 1, p_.head_dim};
  }
  // What a model gives for a row and a 1, which stay the input.
  void Ask(const float* model, const float* row) {
    std::copy_n(row, dim_, m_.input.data());
    m_.input[dim_] = 1;
    SumRows(Model(model), m_.input.data(), m_.given.data());
    std::copy(m_.given.begin(), m_.given.end(), m_.normed.begin());
  }
  // Of each row of a model, the bias too.
  void Meet(const float* model, const ScratchVector<float>& other) {
    MeetRows(Model(model), other.data(), 0, m_.dots.data());
  }

  double Key(int64_t t, size_t c) const { return double{p_.k(b_, h_, t, static_cast<int64_t>(c))}; }
  double Of(std::span<const float> norm, size_t e, double otherwise) const {
    return norm.empty() ? otherwise : double{norm[static_cast<size_t>(h_) * dim_ + e]};
  }
  double Weight(size_t e) const { return Of(p_.options.norm_weight, e, 1); }
  double Bias(size_t e) const { return Of(p_.options.norm_bias, e, 0); }
  double Mean(double sum) const { return sum / static_cast<double>(dim_); }

  // The row of a model becomes normed; returns the inverse deviation.
  double Normalise(Row& row) const {
    double mean = 0, squares = 0;
    for (const double x : row) mean += x;
    mean = Mean(mean);
    for (const double x : row) squares += (x - mean) * (x - mean);
    const double inverse = 1 / std::sqrt(Mean(squares) + kInnerNormEpsilon);
    for (double& x : row) x = (x - mean) * inverse;
    return inverse;
  }

  // What a norm gets becomes what its row does, in place.
  void PassNorm(const Row& normed, double inverse, Row& d_normed) const {
    double sum = 0, along = 0;
    for (size_t e = 0; e < dim_; ++e) {
      sum += d_normed[e];
      along += d_normed[e] * normed[e];
    }
    for (size_t e = 0; e < dim_; ++e) {
      d_normed[e] = inverse * (d_normed[e] - Mean(sum) - normed[e] * Mean(along));
    }
  }

  // The slope of the error of a token, of the model that its mini-batch began with.
  void LoadSlope(int64_t t, const float* begun) {
    Ask(begun, RowOf(p_.k, b_, h_, t));
    inverse_ = Normalise(m_.normed);
    double sum = 0;
    along_ = 0;
    for (size_t e = 0; e < dim_; ++e) {
      const double value = double{p_.v(b_, h_, t, static_cast<int64_t>(e))};
      m_.residual[e] = Key(t, e) + Weight(e) * m_.normed[e] + Bias(e) - value;
      sum += Weight(e) * m_.residual[e];
      along_ += Weight(e) * m_.residual[e] * m_.normed[e];
    }
    along_ = Mean(along_);
    for (size_t e = 0; e < dim_; ++e) {
      m_.slope[e] = static_cast<float>(
          inverse_ * (Weight(e) * m_.residual[e] - Mean(sum) - m_.normed[e] * along_));
    }
  }

  // Through q + norm(W^T (q, 1)), up to what the model gave.
  void Read(int64_t t, int64_t head, const float* model) {
    Ask(model, RowOf(p_.q, b_, head, t));
    const double inverse = Normalise(m_.normed);
    for (size_t e = 0; e < dim_; ++e) {
      const double arriving = double{g_.d_out(b_, head, t, static_cast<int64_t>(e))};
      AddToNorm(e, arriving * m_.normed[e], arriving);
      m_.d_row[e] = arriving * Weight(e);
    }
    PassNorm(m_.normed, inverse, m_.d_row);
    Round(m_.d_row);
    if (!to_.d_q.has_value()) return;
    Meet(model, m_.d_given);
    for (size_t c = 0; c < dim_; ++c) {
      const int64_t column = static_cast<int64_t>(c);
      to_.d_q(b_, head, t, column) = m_.dots[c] + g_.d_out(b_, head, t, column);
    }
  }

  void Round(const Row& row) {
    std::transform(row.begin(), row.end(), m_.d_given.begin(),
                   [](double x) { return static_cast<float>(x); });
  }

  void AddToNorm(size_t e, double weight, double bias) {
    if (!sums_.norm_weight.empty()) sums_.norm_weight[e] += weight;
    if (!sums_.norm_bias.empty()) sums_.norm_bias[e] += bias;
  }

  // Through the step of a token: strength, key and slope.
  void Learn(int64_t t) {
    Meet(DNow(), m_.slope);
    SumRows(Model<const float>(DNow()), m_.input.data(), m_.given.data());
    double strength = 0;
    for (size_t c = 0; c <= dim_; ++c) {
      strength -= double{m_.input[c]} * double{m_.dots[c]};
      if (c < dim_) m_.d_key[c] = -Beta(t) * double{m_.dots[c]};
    }
    for (size_t e = 0; e < dim_; ++e) m_.d_slope[e] = -Beta(t) * double{m_.given[e]};
    g_.d_beta.Add(sums_.beta, {b_, h_, t}, 0, strength);
  }

  // Through the slope, to what the model gave for the key.
  void PassSlope(int64_t t) {
    double sum = 0, along = 0, d_inverse = 0;
    for (size_t e = 0; e < dim_; ++e) {
      sum += m_.d_slope[e];
      along += m_.d_slope[e] * m_.normed[e];
      d_inverse += m_.d_slope[e] * double{m_.slope[e]} / inverse_;
    }
    for (size_t e = 0; e < dim_; ++e) {
      const double weight = Weight(e), n = m_.normed[e], r = m_.residual[e];
      const double d_s = inverse_ * (m_.d_slope[e] - Mean(sum) - n * Mean(along));
      m_.d_row[e] =
          weight * weight * d_s - inverse_ * (m_.d_slope[e] * along_ + weight * r * Mean(along));
      m_.d_key[e] += weight * d_s;
      AddToNorm(e, d_s * (r + weight * n), weight * d_s);
      if (!to_.d_v.has_value()) continue;
      to_.d_v(b_, h_, t, static_cast<int64_t>(e)) = static_cast<float>(-weight * d_s);
    }
    PassNorm(m_.normed, inverse_, m_.d_row);
    for (size_t e = 0; e < dim_; ++e) {
      m_.d_row[e] -= Mean(d_inverse * inverse_ * inverse_ * m_.normed[e]);
    }
  }

  // Through the model that the mini-batch began with, to the key.
  void PassModel(int64_t t, const float* begun) {
    Round(m_.d_row);
    AddOuter(m_.input.data(), m_.d_given.data(), Model(DBegun()));
    if (!to_.d_k.has_value()) return;
    Meet(begun, m_.d_given);
    for (size_t c = 0; c < dim_; ++c) {
      to_.d_k(b_, h_, t, static_cast<int64_t>(c)) =
          static_cast<float>(m_.d_key[c] + double{m_.dots[c]});
    }
  }

  LearningMemory& m_;
  size_t dim_, model_;
  double inverse_ = 0, along_ = 0;  // of the last slope: 1 / deviation, mean(s n)
};

}  // namespace

void RunLearningBackward(const RecurrentBackwardProblem& g, ThreadPool& pool) {
  RunHeads<LearningRule, LearningMemory>(g, pool);
}

}  // namespace heed
