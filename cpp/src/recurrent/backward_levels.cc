// Backward of log-linear attention, level by level. The tokens of the left half of an aligned block
// of 2^level tokens are read by those of its right half with the weights of that level: a small
// linear attention of its own, which no other block changes. With S the state of the left half at
// its end, P the decays from there to a query, Q those from a key to there, and w = scale weight P:
//
//   y = S do,  dq += w y,  dweight = scale P q . y,  dS = sum w q do^T         right
//   dk += Q beta dS v,  dv += Q beta dS^T k,  dbeta += Q k . dS v              left
//
// What a query gets from its block passes the decays up to it, what a key gives those behind it.
#include <algorithm>
#include <cmath>

#include "src/recurrent/backward_tokens.h"

namespace heed {
namespace {

struct LevelsMemory {
  ScratchVector<double> state, d_state;   // [head_dim][head_dim_v]
  ScratchVector<double> row;              // [head_dim_v]: dS^T k
  ScratchVector<double> d_decay, d_beta;  // [kv_len]
  ScratchVector<double> given;            // [kv_len]: what a token adds to L, in one block

  explicit LevelsMemory(const RecurrentProblem& p)
      : state(static_cast<size_t>(p.head_dim * p.head_dim_v)),
        d_state(state.size()),
        row(static_cast<size_t>(p.head_dim_v)),
        d_decay(static_cast<size_t>(p.kv_len)),
        d_beta(d_decay.size()),
        given(d_decay.size()) {}
};

// Tokens [first, end) of all that there were: those before `before` are in the initial states.
struct Span {
  int64_t first, end;
};

class LevelsBackward : HeadBackward {
 public:
  LevelsBackward(const RecurrentBackwardProblem& g, int64_t unit, const HeadGradients& sums,
                 LevelsMemory& memory)
      : HeadBackward(g, unit, sums),
        m_(memory),
        before_(p_.Position(b_, 0)),
        after_(before_ + Length()),
        dim_(p_.head_dim),
        cols_(p_.head_dim_v) {}

  void Run() {
    Clear();
    for (int64_t t = 0; t < Length(); ++t) Itself(t);
    for (int64_t level = 1; level <= p_.num_states; ++level) {
      const int64_t half = int64_t{1} << (level - 1), block = 2 * half;
      const int64_t from = before_ / block * block;
      for (int64_t first = from; first + half < after_; first += block) {
        const Span right = {std::max(first + half, before_), std::min(first + block, after_)};
        if (right.first < right.end) Block({first, first + half}, right, level);
      }
    }
    for (int64_t l = 0; l < p_.num_states; ++l) {
      if ((after_ >> l & 1) != 0) FinalState(l);
    }
    Store();
  }

 private:
  double Weight(int64_t head, int64_t t, int64_t level) const {
    return double{p_.options.level_weights(b_, head, t, level)};
  }
  double Gate(int64_t t) const { return Decay(t, 0); }

  void Clear() {
    std::fill(m_.d_decay.begin(), m_.d_decay.end(), 0.0);
    std::fill(m_.d_beta.begin(), m_.d_beta.end(), 0.0);
    const auto clear = [&](const TensorView<float>& view, int64_t head) {
      for (int64_t t = 0; t < view.shape[2] && view.has_value(); ++t) {
        for (int64_t c = 0; c < view.shape[3]; ++c) view(b_, head, t, c) = 0;
      }
    };
    clear(to_.d_k, h_);
    clear(to_.d_v, h_);
    clear(to_.d_initial_state, h_);
    for (int64_t head = FirstHead(); head < FirstHead() + p_.group; ++head) {
      clear(to_.d_q, head);
      clear(to_.d_level_weights, head);
    }
  }

  static void AddTo(const TensorView<float>& to, const TokenPlace& at, int64_t c, double value) {
    if (to.has_value()) to(at.b, at.head, at.t, c) += static_cast<float>(value);
  }
  void SetWeight(int64_t head, int64_t t, int64_t level, double value) const {
    const TensorView<float>& to = to_.d_level_weights;
    if (to.has_value()) to(b_, head, t, level) = static_cast<float>(value);
  }

  // A token reads what it wrote itself, at level 0, and by its direct path.
  void Itself(int64_t t) {
    for (int64_t n = 0; n < p_.group; ++n) {
      const int64_t head = FirstHead() + n;
      double meet = 0, along = 0;
      for (int64_t c = 0; c < dim_; ++c) {
        meet += double{p_.q(b_, head, t, c)} * double{p_.k(b_, h_, t, c)};
      }
      for (int64_t e = 0; e < cols_; ++e) {
        along += double{g_.d_out(b_, head, t, e)} * double{p_.v(b_, h_, t, e)};
      }
      const double factor = double{p_.scale} * Beta(t), weight = Weight(head, t, 0);
      const double skip =
          p_.options.skip.empty() ? 0 : double{p_.options.skip[static_cast<size_t>(head)]};
      SetWeight(head, t, 0, factor * meet * along);
      m_.d_beta[static_cast<size_t>(t)] += double{p_.scale} * weight * meet * along;
      if (!sums_.skip.empty()) sums_.skip[static_cast<size_t>(n)] += along;
      for (int64_t c = 0; c < dim_; ++c) {
        AddTo(to_.d_q, {b_, head, t}, c, factor * weight * along * double{p_.k(b_, h_, t, c)});
        AddTo(to_.d_k, {b_, h_, t}, c, factor * weight * along * double{p_.q(b_, head, t, c)});
      }
      for (int64_t e = 0; e < cols_; ++e) {
        AddTo(to_.d_v, {b_, h_, t}, e,
              (factor * weight * meet + skip) * double{g_.d_out(b_, head, t, e)});
      }
    }
  }

  // The initial states whose tokens lie in a span.
  template <class Body>
  void ForEachInitial(const Span& span, const Body& body) const {
    if (!p_.options.initial_state.has_value()) return;
    for (int64_t l = 0; l < p_.num_states; ++l) {
      const int64_t first = before_ >> (l + 1) << (l + 1);
      if ((before_ >> l & 1) != 0 && first >= span.first && first < span.end) body(l);
    }
  }

  bool IsEmpty(const Span& span) const {
    return span.end <= before_ && !p_.options.initial_state.has_value();
  }

  // The state of a span at its end, from the last token to the first.
  void LoadState(const Span& span) {
    std::fill(m_.state.begin(), m_.state.end(), 0.0);
    double passed = 1;
    for (int64_t t = span.end - before_; t-- > std::max<int64_t>(span.first - before_, 0);) {
      if (passed == 0) return;
      for (int64_t c = 0; c < dim_; ++c) {
        const double key = passed * Beta(t) * double{p_.k(b_, h_, t, c)};
        for (int64_t e = 0; e < cols_; ++e) At(m_.state, c, e) += key * double{p_.v(b_, h_, t, e)};
      }
      passed *= Gate(t);
    }
    if (passed == 0) return;
    ForEachInitial(span, [&](int64_t l) {
      for (int64_t c = 0; c < dim_; ++c) {
        for (int64_t e = 0; e < cols_; ++e) At(m_.state, c, e) += passed * Initial(l, c, e);
      }
    });
  }

  double& At(ScratchVector<double>& state, int64_t c, int64_t e) const {
    return state[static_cast<size_t>(c * cols_ + e)];
  }
  double Initial(int64_t l, int64_t c, int64_t e) const {
    return double{p_.options.initial_state(b_, h_, l * dim_ + c, e)};
  }

  void Block(const Span& left, const Span& right, int64_t level) {
    if (IsEmpty(left)) return;
    LoadState(left);
    std::fill(m_.d_state.begin(), m_.d_state.end(), 0.0);
    const int64_t first = right.first - before_, end = right.end - before_;
    double passed = 1;
    for (int64_t t = first; t < end; ++t) {
      passed *= Gate(t);
      double given = 0;
      for (int64_t head = FirstHead(); head < FirstHead() + p_.group && passed != 0; ++head) {
        given += Read(t, head, level, passed);
      }
      Given(t) = given;
    }
    // It passes the decays from the first token of the right half to that of its query.
    double sum = 0;
    for (int64_t t = end; t-- > first;) DDecay(t) += sum += Given(t);
    Write(left);
  }

  // A query of the right half; returns what it adds to L.
  double Read(int64_t t, int64_t head, int64_t level, double passed) {
    const double factor = double{p_.scale} * passed;
    const double weight = factor * Weight(head, t, level);
    double given = 0;
    for (int64_t c = 0; c < dim_; ++c) {
      const double query = double{p_.q(b_, head, t, c)};
      double sum = 0;
      for (int64_t e = 0; e < cols_; ++e) {
        const double arriving = double{g_.d_out(b_, head, t, e)};
        sum += At(m_.state, c, e) * arriving;
        At(m_.d_state, c, e) += weight * query * arriving;
      }
      AddTo(to_.d_q, {b_, head, t}, c, weight * sum);
      given += query * sum;
    }
    SetWeight(head, t, level, factor * given);
    return weight * given;
  }

  // What d_state gives to the tokens and initial states of a span.
  void Write(const Span& span) {
    const int64_t first = std::max<int64_t>(span.first - before_, 0);
    const int64_t end = std::max(span.end - before_, first);
    double passed = 1;
    for (int64_t t = end; t-- > first;) {
      Given(t) = passed == 0 ? 0 : WriteToken(t, passed);
      passed *= Gate(t);
    }
    double sum = 0;
    ForEachInitial(span, [&](int64_t l) {
      if (passed != 0) sum += WriteInitial(l, passed);
    });
    // It passes the decays behind its key.
    for (int64_t t = first; t < end; ++t) {
      DDecay(t) += sum;
      sum += Given(t);
    }
  }

  double WriteToken(int64_t t, double passed) {
    const double factor = passed * Beta(t);
    double strength = 0;
    std::fill(m_.row.begin(), m_.row.end(), 0.0);
    for (int64_t c = 0; c < dim_; ++c) {
      const double key = double{p_.k(b_, h_, t, c)};
      double sum = 0;
      for (int64_t e = 0; e < cols_; ++e) {
        sum += At(m_.d_state, c, e) * double{p_.v(b_, h_, t, e)};
        m_.row[static_cast<size_t>(e)] += At(m_.d_state, c, e) * key;
      }
      AddTo(to_.d_k, {b_, h_, t}, c, factor * sum);
      strength += key * sum;
    }
    for (int64_t e = 0; e < cols_; ++e) {
      AddTo(to_.d_v, {b_, h_, t}, e, factor * m_.row[static_cast<size_t>(e)]);
    }
    m_.d_beta[static_cast<size_t>(t)] += passed * strength;
    return factor * strength;
  }

  double WriteInitial(int64_t l, double passed) {
    double sum = 0;
    for (int64_t c = 0; c < dim_; ++c) {
      for (int64_t e = 0; e < cols_; ++e) {
        const double gradient = passed * At(m_.d_state, c, e);
        AddTo(to_.d_initial_state, {b_, h_, l * dim_ + c}, e, gradient);
        sum += gradient * Initial(l, c, e);
      }
    }
    return sum;
  }

  // A state of 2^l tokens, which is read as it is after the last token.
  void FinalState(int64_t l) {
    const TensorView<const float>& from = to_.d_final_state;
    const int64_t first = after_ >> (l + 1) << (l + 1), end = first + (int64_t{1} << l);
    const Span span = {first, end};
    if (!from.has_value() || IsEmpty(span)) return;
    double passed = 1;
    const int64_t behind = std::max<int64_t>(end - before_, 0);
    for (int64_t t = behind; t < Length(); ++t) passed *= Gate(t);
    if (passed == 0) return;
    LoadState(span);
    double given = 0;
    for (int64_t c = 0; c < dim_; ++c) {
      for (int64_t e = 0; e < cols_; ++e) {
        At(m_.d_state, c, e) = passed * double{from(b_, h_, l * dim_ + c, e)};
        given += At(m_.d_state, c, e) * At(m_.state, c, e);
      }
    }
    for (int64_t t = behind; t < Length(); ++t) DDecay(t) += given;
    Write(span);
  }

  void Store() {
    for (int64_t t = 0; t < Length(); ++t) {
      // A factor of 0 stays 0, whatever its logarithm does.
      g_.d_log_decay.Add(sums_.log_decay, {b_, h_, t}, 0, Gate(t) == 0 ? 0 : DDecay(t));
      g_.d_beta.Add(sums_.beta, {b_, h_, t}, 0, m_.d_beta[static_cast<size_t>(t)]);
    }
    ClearBeyondLength();
  }

  double& DDecay(int64_t t) { return m_.d_decay[static_cast<size_t>(t)]; }
  double& Given(int64_t t) { return m_.given[static_cast<size_t>(t)]; }

  LevelsMemory& m_;
  int64_t before_, after_, dim_, cols_;
};

}  // namespace

void RunLevelsBackward(const RecurrentBackwardProblem& g, ThreadPool& pool) {
  RunHeads<LevelsBackward, LevelsMemory>(g, pool);
}

}  // namespace heed
