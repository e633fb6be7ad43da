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

#include "src/recurrent/backward_tokens.h"

namespace heed {
namespace {

// Rows and columns of the state, on the way back.
struct ErasingMemory {
  TokenStates states;
  ScratchVector<double> after, d_state;
  ScratchVector<double> eraser, d_eraser;  // [head_dim]
  ScratchVector<double> read, d_read;      // [head_dim_v]: r and dr
  ScratchVector<double> d_write;           // [head_dim_v]: dS^T k

  explicit ErasingMemory(const RecurrentProblem& p)
      : states(static_cast<size_t>(p.head_dim * p.head_dim_v), p.kv_len),
        after(static_cast<size_t>(p.head_dim * p.head_dim_v)),
        d_state(after.size()),
        eraser(static_cast<size_t>(p.head_dim)),
        d_eraser(eraser.size()),
        read(static_cast<size_t>(p.head_dim_v)),
        d_read(read.size()),
        d_write(read.size()) {}
};

class ErasingRule final : public TokenRule {
 public:
  ErasingRule(const RecurrentBackwardProblem& g, int64_t unit, const HeadGradients& sums,
              ErasingMemory& memory)
      : TokenRule(g, unit, sums),
        m_(memory),
        dim_(static_cast<size_t>(p_.head_dim)),
        cols_(static_cast<size_t>(p_.head_dim_v)) {}

  void Run() { RunTokens(m_.states, m_.after.data(), m_.d_state.data()); }

  void Advance(int64_t t, double* state) override {
    LoadEraser(t, state);
    for (size_t c = 0; c < dim_; ++c) {
      const double decay = Decay(t, static_cast<int64_t>(c)), key = Beta(t) * Key(t, c);
      const double erased = Rate(t, c) * m_.eraser[c];
      double* row = state + c * cols_;
      for (size_t e = 0; e < cols_; ++e) {
        row[e] = (decay == 0 ? 0 : decay * row[e]) - erased * m_.read[e] + key * Value(t, e);
      }
    }
  }

  void Retreat(int64_t t, const double* before) override {
    std::copy_n(before, m_.after.size(), m_.after.data());
    Advance(t, m_.after.data());  // and with it the eraser of the token
    if (t + 1 == Length()) ReadLast();
    for (int64_t n = 0; n < p_.group && p_.options.causal; ++n) Read(t, n, true);
    Write(t);
    Erase(t, before);
  }

 private:
  double Key(int64_t t, size_t c) const { return double{p_.k(b_, h_, t, static_cast<int64_t>(c))}; }
  double Value(int64_t t, size_t e) const {
    return double{p_.v(b_, h_, t, static_cast<int64_t>(e))};
  }
  double Rate(int64_t t, size_t c) const {
    return double{p_.options.erase_rate(b_, h_, t, static_cast<int64_t>(c))};
  }
  double Size(int64_t t) const {
    double squares = 0;
    for (size_t c = 0; c < dim_; ++c) {
      const double x = double{p_.options.erase_key(b_, h_, t, static_cast<int64_t>(c))};
      squares += x * x;
    }
    return std::sqrt(squares);
  }

  // The direction of the key to erase by, and what the state answers to it.
  void LoadEraser(int64_t t, const double* state) {
    const double size = Size(t);
    std::fill(m_.read.begin(), m_.read.end(), 0.0);
    for (size_t c = 0; c < dim_; ++c) {
      const double x = double{p_.options.erase_key(b_, h_, t, static_cast<int64_t>(c))};
      m_.eraser[c] = size == 0 ? 0 : x / size;
      for (size_t e = 0; e < cols_; ++e) m_.read[e] += m_.eraser[c] * state[c * cols_ + e];
    }
  }

  // Queries that read the last state alone.
  void ReadLast() override {
    for (int64_t t = p_.options.causal ? Length() : 0; t < p_.q_len; ++t) {
      for (int64_t n = 0; n < p_.group; ++n) Read(t, n, false);
    }
  }

  // Query head n of the group; `exists`: token t has a value of its own.
  void Read(int64_t t, int64_t n, bool exists) {
    const int64_t head = FirstHead() + n;
    const double scale = double{p_.scale};
    const float* arriving = cols_ == 0 ? nullptr : &g_.d_out(b_, head, t, 0);
    for (size_t c = 0; c < dim_; ++c) {
      const int64_t column = static_cast<int64_t>(c);
      const double query = scale * double{p_.q(b_, head, t, column)};
      double sum = 0;
      for (size_t e = 0; e < cols_; ++e) {
        sum += m_.after[c * cols_ + e] * double{arriving[e]};
        m_.d_state[c * cols_ + e] += query * double{arriving[e]};
      }
      if (to_.d_q.has_value()) to_.d_q(b_, head, t, column) = static_cast<float>(scale * sum);
    }
    if (!exists || sums_.skip.empty()) return;
    for (size_t e = 0; e < cols_; ++e) {
      sums_.skip[static_cast<size_t>(n)] += double{arriving[e]} * Value(t, e);
    }
  }

  // What the key, the value and the strength get.
  void Write(int64_t t) {
    std::fill(m_.d_write.begin(), m_.d_write.end(), 0.0);
    for (size_t c = 0; c < dim_; ++c) {
      const double* row = m_.d_state.data() + c * cols_;
      double sum = 0;
      for (size_t e = 0; e < cols_; ++e) {
        sum += row[e] * Value(t, e);
        m_.d_write[e] += Key(t, c) * row[e];
      }
      if (to_.d_k.has_value()) {
        to_.d_k(b_, h_, t, static_cast<int64_t>(c)) = static_cast<float>(Beta(t) * sum);
      }
    }
    double strength = 0;
    for (size_t e = 0; e < cols_; ++e) {
      strength += m_.d_write[e] * Value(t, e);
      if (!to_.d_v.has_value()) continue;
      const int64_t column = static_cast<int64_t>(e);
      to_.d_v(b_, h_, t, column) = static_cast<float>(Beta(t) * m_.d_write[e] + Skipped(t, column));
    }
    g_.d_beta.Add(sums_.beta, {b_, h_, t}, 0, strength);
  }

  // What the direct path of the value gives.
  double Skipped(int64_t t, int64_t e) const {
    double sum = 0;
    for (int64_t n = 0; n < p_.group && !p_.options.skip.empty(); ++n) {
      const int64_t head = FirstHead() + n;
      sum += double{p_.options.skip[static_cast<size_t>(head)]} * double{g_.d_out(b_, head, t, e)};
    }
    return sum;
  }

  // What the eraser and the decay get; then what arrives at the state before the token.
  void Erase(int64_t t, const double* before) {
    std::fill(m_.d_read.begin(), m_.d_read.end(), 0.0);
    for (size_t c = 0; c < dim_; ++c) {
      const double* row = m_.d_state.data() + c * cols_;
      double along = 0;
      for (size_t e = 0; e < cols_; ++e) {
        along += row[e] * m_.read[e];
        m_.d_read[e] -= Rate(t, c) * m_.eraser[c] * row[e];
      }
      m_.d_eraser[c] = -Rate(t, c) * along;
      if (!to_.d_erase_rate.has_value()) continue;
      to_.d_erase_rate(b_, h_, t, static_cast<int64_t>(c)) =
          static_cast<float>(-m_.eraser[c] * along);
    }
    double factors = 0;  // of one decay for all channels
    for (size_t c = 0; c < dim_; ++c) {
      const double passed = DecayRow(t, c, before + c * cols_);
      factors += passed;
      if (p_.decays_channels) {
        g_.d_log_decay.Add(sums_.log_decay, {b_, h_, t}, static_cast<int64_t>(c), passed);
      }
    }
    if (!p_.decays_channels) g_.d_log_decay.Add(sums_.log_decay, {b_, h_, t}, 0, factors);
    StoreEraser(t);
  }

  // Row c of what arrives before the token; returns what its decay gets.
  double DecayRow(int64_t t, size_t c, const double* before) {
    const double decay = Decay(t, static_cast<int64_t>(c));
    double* row = m_.d_state.data() + c * cols_;
    double passed = 0;
    for (size_t e = 0; e < cols_; ++e) {
      m_.d_eraser[c] += before[e] * m_.d_read[e];
      // A factor of 0 stays 0, and nothing passes it.
      if (decay != 0) passed += decay * row[e] * before[e];
      row[e] = (decay == 0 ? 0 : decay * row[e]) + m_.eraser[c] * m_.d_read[e];
    }
    return passed;
  }

  // Through the length of the key, of which a vector of zeros has none.
  void StoreEraser(int64_t t) const {
    if (!to_.d_erase_key.has_value()) return;
    const double size = Size(t);
    double along = 0;
    for (size_t c = 0; c < dim_; ++c) along += m_.eraser[c] * m_.d_eraser[c];
    for (size_t c = 0; c < dim_; ++c) {
      to_.d_erase_key(b_, h_, t, static_cast<int64_t>(c)) =
          size == 0 ? 0 : static_cast<float>((m_.d_eraser[c] - m_.eraser[c] * along) / size);
    }
  }

  ErasingMemory& m_;
  size_t dim_, cols_;
};

}  // namespace

void RunErasingBackward(const RecurrentBackwardProblem& g, ThreadPool& pool) {
  RunHeads<ErasingRule, ErasingMemory>(g, pool);
}

}  // namespace heed
