// Backward of the generalised delta rule. With e = erase_key / |erase_key|, r = S'^T e what is
// erased of the state S' before a token, a = exp(log_decay), and dS what arrives at the state after
// it:
//
//   S = a S' - (rate e) r^T + beta k v^T
//   dS += scale q do^T,  dq = scale S do                               reading
//   dk = beta dS v,  dv = beta dS^T k,  dbeta = v . dS^T k             writing
//   dr = -dS^T (rate e),  drate = -e dS r,  de = S' dr - rate dS r     erasing
//   dlog_decay = a sum(S' dS),  dS' = a dS + e dr^T
#include <algorithm>
#include <cmath>

#include "src/compose/rows.h"
#include "src/recurrent/backward_tokens.h"
#include "src/rows/dot.h"

namespace heed {
namespace {

// Rows and columns of the state, on the way back.
struct ErasingMemory {
  TokenStates states;
  ScratchVector<float> d_state;
  ScratchVector<float> decay, eraser, erased, d_eraser;  // [head_dim]; rate * eraser
  ScratchVector<float> read, d_read;                     // [head_dim_v]: r and dr
  ScratchVector<float> write, d_write;                   // [head_dim_v]: beta v and dS^T k

  explicit ErasingMemory(const RecurrentProblem& p)
      : states(static_cast<size_t>(p.head_dim * p.head_dim_v), p.kv_len),
        d_state(static_cast<size_t>(p.head_dim * p.head_dim_v)) {
    for (auto* row : {&decay, &eraser, &erased, &d_eraser}) {
      row->resize(static_cast<size_t>(p.head_dim));
    }
    for (auto* row : {&read, &d_read, &write, &d_write}) {
      row->resize(static_cast<size_t>(p.head_dim_v));
    }
  }
};

class ErasingRule final : public TokenRule {
 public:
  ErasingRule(const RecurrentBackwardProblem& g, int64_t unit, const HeadGradients& sums,
              ErasingMemory& memory)
      : TokenRule(g, unit, sums), m_(memory), dim_(p_.head_dim), cols_(p_.head_dim_v) {}

  void Run() { RunTokens(m_.states, m_.d_state.data()); }

  void Advance(int64_t t, float* state) override {
    LoadToken(t, state);
    const float* const k = RowOf(p_.k, b_, h_, t);
    for (int64_t c = 0; c < dim_; ++c) {
      float* const row = state + c * cols_;
      const float decay = m_.decay[Index(c)];
      if (decay == 0) {
        std::fill_n(row, cols_, 0.0f);
      } else {
        for (int64_t e = 0; e < cols_; ++e) row[e] *= decay;
      }
      AddTimes(-m_.erased[Index(c)], m_.read.data(), cols_, row);
      AddTimes(k[c], m_.write.data(), cols_, row);
    }
  }

  void Retreat(int64_t t, const float* before, const float* after) override {
    LoadToken(t, before);
    for (int64_t n = 0; n < p_.group && p_.options.causal; ++n) Read(t, n, after, true);
    Write(t);
    Erase(t, before);
  }

  void ReadLast(const float* state) override {
    for (int64_t t = p_.options.causal ? Length() : 0; t < p_.q_len; ++t) {
      for (int64_t n = 0; n < p_.group; ++n) Read(t, n, state, false);
    }
  }

 private:
  static size_t Index(int64_t n) { return static_cast<size_t>(n); }
  float* DRow(int64_t c) { return m_.d_state.data() + c * cols_; }

  double Size(int64_t t) const {
    const float* const key = RowOf(p_.options.erase_key, b_, h_, t);
    return std::sqrt(DotRows(key, key, dim_));
  }

  // The factors of a token, the direction of the key to erase by, and what the state answers to it.
  void LoadToken(int64_t t, const float* state) {
    const float* const erase_key = RowOf(p_.options.erase_key, b_, h_, t);
    const double size = Size(t);
    std::fill(m_.read.begin(), m_.read.end(), 0.0f);
    for (int64_t c = 0; c < dim_; ++c) {
      const float eraser = size == 0 ? 0 : static_cast<float>(double{erase_key[c]} / size);
      m_.decay[Index(c)] = static_cast<float>(Decay(t, c));
      m_.eraser[Index(c)] = eraser;
      m_.erased[Index(c)] = p_.options.erase_rate(b_, h_, t, c) * eraser;
      AddTimes(eraser, state + c * cols_, cols_, m_.read.data());
    }
    const float* const value = RowOf(p_.v, b_, h_, t);
    const float beta = static_cast<float>(Beta(t));
    for (int64_t e = 0; e < cols_; ++e) m_.write[Index(e)] = beta * value[e];
  }

  // Query head n of the group; `exists`: token t has a value of its own.
  void Read(int64_t t, int64_t n, const float* state, bool exists) {
    const int64_t head = FirstHead() + n;
    const float* const q = RowOf(p_.q, b_, head, t);
    const float* const arriving = RowOf(g_.d_out, b_, head, t);
    for (int64_t c = 0; c < dim_; ++c) {
      if (to_.d_q.has_value()) {
        to_.d_q(b_, head, t, c) = p_.scale * DotShort(state + c * cols_, arriving, cols_);
      }
      AddTimes(p_.scale * q[c], arriving, cols_, DRow(c));
    }
    if (!exists || sums_.skip.empty()) return;
    sums_.skip[Index(n)] += DotRows(arriving, RowOf(p_.v, b_, h_, t), cols_);
  }

  // What the key, the value and the strength get.
  void Write(int64_t t) {
    const float* const k = RowOf(p_.k, b_, h_, t);
    std::fill(m_.d_write.begin(), m_.d_write.end(), 0.0f);
    for (int64_t c = 0; c < dim_; ++c) {
      if (to_.d_k.has_value()) to_.d_k(b_, h_, t, c) = DotShort(DRow(c), m_.write.data(), cols_);
      AddTimes(k[c], DRow(c), cols_, m_.d_write.data());
    }
    g_.d_beta.Add(sums_.beta, {b_, h_, t}, 0,
                  DotRows(m_.d_write.data(), RowOf(p_.v, b_, h_, t), cols_));
    if (!to_.d_v.has_value()) return;
    for (int64_t e = 0; e < cols_; ++e) {
      to_.d_v(b_, h_, t, e) =
          static_cast<float>(Beta(t) * double{m_.d_write[Index(e)]} + Skipped(t, e));
    }
  }

  // What the direct path of the value gives.
  double Skipped(int64_t t, int64_t e) const {
    double sum = 0;
    for (int64_t n = 0; n < p_.group && !p_.options.skip.empty(); ++n) {
      const int64_t head = FirstHead() + n;
      sum += double{p_.options.skip[Index(head)]} * double{g_.d_out(b_, head, t, e)};
    }
    return sum;
  }

  // What the eraser and the decay get; then what arrives at the state before the token.
  void Erase(int64_t t, const float* before) {
    std::fill(m_.d_read.begin(), m_.d_read.end(), 0.0f);
    for (int64_t c = 0; c < dim_; ++c) {
      const float along = DotShort(DRow(c), m_.read.data(), cols_);
      AddTimes(-m_.erased[Index(c)], DRow(c), cols_, m_.d_read.data());
      m_.d_eraser[Index(c)] = -p_.options.erase_rate(b_, h_, t, c) * along;
      if (to_.d_erase_rate.has_value()) {
        to_.d_erase_rate(b_, h_, t, c) = -m_.eraser[Index(c)] * along;
      }
    }
    double factors = 0;  // of one decay for all channels
    for (int64_t c = 0; c < dim_; ++c) {
      const float passed = DecayRow(c, before + c * cols_);
      factors += double{passed};
      if (p_.decays_channels) {
        g_.d_log_decay.Add(sums_.log_decay, {b_, h_, t}, c, double{passed});
      }
    }
    if (!p_.decays_channels) g_.d_log_decay.Add(sums_.log_decay, {b_, h_, t}, 0, factors);
    StoreEraser(t);
  }

  // Row c of what arrives before the token; returns what its decay gets.
  float DecayRow(int64_t c, const float* before) {
    float* const row = DRow(c);
    const float decay = m_.decay[Index(c)];
    m_.d_eraser[Index(c)] += DotShort(before, m_.d_read.data(), cols_);
    float passed = 0;
    if (decay == 0) {  // stays 0, and nothing passes it
      std::fill_n(row, cols_, 0.0f);
    } else {
      for (int64_t e = 0; e < cols_; ++e) row[e] *= decay;
      passed = DotShort(row, before, cols_);
    }
    AddTimes(m_.eraser[Index(c)], m_.d_read.data(), cols_, row);
    return passed;
  }

  // Through the length of the key, of which a vector of zeros has none.
  void StoreEraser(int64_t t) const {
    if (!to_.d_erase_key.has_value()) return;
    const double size = Size(t);
    const double along = DotRows(m_.eraser.data(), m_.d_eraser.data(), dim_);
    for (int64_t c = 0; c < dim_; ++c) {
      const double eraser = double{m_.eraser[Index(c)]}, gradient = double{m_.d_eraser[Index(c)]};
      to_.d_erase_key(b_, h_, t, c) =
          size == 0 ? 0 : static_cast<float>((gradient - eraser * along) / size);
    }
  }

  ErasingMemory& m_;
  int64_t dim_, cols_;
};

}  // namespace

void RunErasingBackward(const RecurrentBackwardProblem& g, ThreadPool& pool) {
  RunHeads<ErasingRule, ErasingMemory>(g, pool);
}

}  // namespace heed
