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
#include "src/recurrent/state_rows.h"
#include "src/rows/dot.h"

namespace heed {
namespace {

// Rows and columns of the state, on the way back.
struct ErasingMemory {
  TokenStates states;
  ScratchVector<float> d_state;
  ScratchVector<float> decay, eraser, erased, d_eraser;  // [head_dim]; -rate * eraser
  ScratchVector<float> factors, dots;                    // [head_dim]
  ScratchVector<float> read, d_read;                     // [head_dim_v]: r and dr
  ScratchVector<float> write, d_write;                   // [head_dim_v]: beta v and dS^T k

  explicit ErasingMemory(const RecurrentProblem& p)
      : states(static_cast<size_t>(p.head_dim * p.head_dim_v), p.kv_len),
        d_state(static_cast<size_t>(p.head_dim * p.head_dim_v)) {
    for (auto* row : {&decay, &eraser, &erased, &d_eraser, &factors, &dots}) {
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

  void Advance(int64_t t, const float* before, float* after) override {
    LoadToken(t, before);
    const Outer products[] = {{m_.erased.data(), m_.read.data()},
                              {RowOf(p_.k, b_, h_, t), m_.write.data()}};
    StepRows(Rows(before), m_.decay.data(), products, after);
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
  template <class T>
  StateRows<T> Rows(T* state) const {
    return {state, dim_, cols_};
  }
  StateRows<float> DRows() { return Rows(m_.d_state.data()); }
  StateRows<const float> KnownDRows() const { return {m_.d_state.data(), dim_, cols_}; }

  double Size(int64_t t) const {
    const float* const key = RowOf(p_.options.erase_key, b_, h_, t);
    return std::sqrt(DotRows(key, key, dim_));
  }

  // The factors of a token, the direction of the key to erase by, and what the state answers to it.
  void LoadToken(int64_t t, const float* state) {
    const float* const erase_key = RowOf(p_.options.erase_key, b_, h_, t);
    const double size = Size(t);
    for (int64_t c = 0; c < dim_; ++c) {
      const float eraser = size == 0 ? 0 : static_cast<float>(double{erase_key[c]} / size);
      m_.decay[Index(c)] = static_cast<float>(Decay(t, c));
      m_.eraser[Index(c)] = eraser;
      m_.erased[Index(c)] = -p_.options.erase_rate(b_, h_, t, c) * eraser;
    }
    SumRows(Rows(state), m_.eraser.data(), m_.read.data());
    const float* const value = RowOf(p_.v, b_, h_, t);
    const float beta = static_cast<float>(Beta(t));
    for (int64_t e = 0; e < cols_; ++e) m_.write[Index(e)] = beta * value[e];
  }

  // Query head n of the group; `exists`: token t has a value of its own.
  void Read(int64_t t, int64_t n, const float* state, bool exists) {
    const int64_t head = FirstHead() + n;
    const float* const q = RowOf(p_.q, b_, head, t);
    const float* const arriving = RowOf(g_.d_out, b_, head, t);
    if (to_.d_q.has_value()) {
      MeetRows(Rows(state), arriving, 0, m_.dots.data());
      for (int64_t c = 0; c < dim_; ++c) to_.d_q(b_, head, t, c) = p_.scale * m_.dots[Index(c)];
    }
    for (int64_t c = 0; c < dim_; ++c) m_.factors[Index(c)] = p_.scale * q[c];
    AddOuter(m_.factors.data(), arriving, DRows());
    if (!exists || sums_.skip.empty()) return;
    sums_.skip[Index(n)] += DotRows(arriving, RowOf(p_.v, b_, h_, t), cols_);
  }

  // What the key, the value and the strength get.
  void Write(int64_t t) {
    if (to_.d_k.has_value()) MeetRows(KnownDRows(), m_.write.data(), 0, &to_.d_k(b_, h_, t, 0));
    SumRows(KnownDRows(), RowOf(p_.k, b_, h_, t), m_.d_write.data());
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
    MeetRows(KnownDRows(), m_.read.data(), 0, m_.dots.data());
    SumRows(KnownDRows(), m_.erased.data(), m_.d_read.data());
    MeetRows(Rows(before), m_.d_read.data(), 0, m_.d_eraser.data());
    for (int64_t c = 0; c < dim_; ++c) {
      const float along = m_.dots[Index(c)];
      m_.d_eraser[Index(c)] -= p_.options.erase_rate(b_, h_, t, c) * along;
      if (to_.d_erase_rate.has_value()) {
        to_.d_erase_rate(b_, h_, t, c) = -m_.eraser[Index(c)] * along;
      }
    }
    GiveDecay(t, before);
    const Outer read = {m_.eraser.data(), m_.d_read.data()};
    StepRows(KnownDRows(), m_.decay.data(), {&read, 1}, m_.d_state.data());
    StoreEraser(t);
  }

  // What the decay gets, of which nothing passes one of 0.
  void GiveDecay(int64_t t, const float* before) {
    MeetRows(KnownDRows(), before, cols_, m_.dots.data());
    double all = 0;  // of one decay for all channels
    for (int64_t c = 0; c < dim_; ++c) {
      const double decay = double{m_.decay[Index(c)]};
      const double passed = decay == 0 ? 0 : decay * double{m_.dots[Index(c)]};
      all += passed;
      if (p_.decays_channels) g_.d_log_decay.Add(sums_.log_decay, {b_, h_, t}, c, passed);
    }
    if (!p_.decays_channels) g_.d_log_decay.Add(sums_.log_decay, {b_, h_, t}, 0, all);
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
