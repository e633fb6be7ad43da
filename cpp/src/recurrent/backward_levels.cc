// Backward of log-linear attention, level by level. The tokens of the left half of an aligned block
// of 2^level tokens are read by those of its right half with the weights of that level: a small
// linear attention of its own, which no other block changes. With P the decays from the end of the
// left half to a query, w = scale weight P and y what arrives at the query w q:
//
//   dq += w y,  dweight = scale P q . y
//
// and what both are in, w q . y, passes those decays. Levels within a chunk are taken at once.
#include "src/recurrent/backward_levels.h"

#include <algorithm>

#include "src/rows/dot.h"

namespace heed {
namespace {

// All heads of one batch entry at a time: positions differ between entries.
class LevelsBackward {
 public:
  LevelsBackward(const RecurrentBackwardProblem& g, ThreadPool& pool)
      : g_(g),
        p_(g.forward),
        to_(g.gradients),
        pool_(pool),
        chunk_(g, pool),
        sums_(g),
        queries_(Rows(p_.num_heads, p_.head_dim)),
        d_queries_(queries_.view().shape),
        arriving_(Rows(p_.num_heads, p_.head_dim_v)),
        d_keys_(Rows(p_.num_kv_heads, p_.head_dim)),
        d_values_(Rows(p_.num_kv_heads, p_.head_dim_v)),
        d_gates_(Rows(p_.num_kv_heads, 1)),
        d_betas_(d_gates_.view().shape),
        state_({1, p_.num_kv_heads, p_.head_dim, p_.head_dim_v}),
        d_state_(state_.view().shape),
        d_final_(state_.view().shape),
        factors_(static_cast<size_t>(p_.num_heads * p_.kv_len)),
        passed_(static_cast<size_t>(p_.num_kv_heads)) {
    for (int64_t h = 0; h < p_.num_kv_heads; ++h) heads_.emplace_back(g_, h, HeadGradients{});
  }

  void Run() {
    for (b_ = 0; b_ < p_.batch; ++b_) {
      heads_.clear();
      for (int64_t h = 0; h < p_.num_kv_heads; ++h) {
        const int64_t unit = b_ * p_.num_kv_heads + h;
        heads_.emplace_back(g_, unit, sums_.Of(unit));
      }
      before_ = p_.Position(b_, 0);
      after_ = before_ + p_.KeyLength(b_);
      RunEntry();
    }
    sums_.Write();
  }

 private:
  Extents Rows(int64_t heads, int64_t width) const { return {1, heads, p_.kv_len, width}; }
  template <class Body>
  void ForEachHead(const Body& body) {
    pool_.Run(p_.num_kv_heads, [&](int64_t h, int) { body(h, heads_[static_cast<size_t>(h)]); });
  }

  void RunEntry() {
    ForEachHead([&](int64_t, LevelsHead& head) {
      head.Begin();
      for (int64_t t = 0; t < after_ - before_; ++t) head.Itself(t);
    });
    for (int64_t first = before_ / kLevelsChunk * kLevelsChunk; first < after_;
         first += kLevelsChunk) {
      Chunk({std::max(first, before_), std::min(first + kLevelsChunk, after_)});
    }
    for (int64_t level = kLevelsInChunk + 1; level <= p_.num_states; ++level) {
      Level(level, {before_, after_});
    }
    for (int64_t l = 0; l < p_.num_states; ++l) {
      if ((after_ >> l & 1) != 0) FinalState(l);
    }
    ForEachHead([](int64_t, LevelsHead& head) { head.Store(); });
  }

  // Block by block where older states are read, or a number is not finite.
  void Chunk(const TokenSpan& span) {
    const bool reads_older = p_.options.initial_state.has_value() && span.first % kLevelsChunk != 0;
    if (!reads_older && chunk_.Run(b_, span.first - before_, span, heads_)) return;
    for (int64_t level = 1; level <= std::min(kLevelsInChunk, p_.num_states); ++level) {
      Level(level, span);
    }
  }

  // The blocks of a level that a span of positions meets; those that lie in it whole at once.
  void Level(int64_t level, const TokenSpan& span) {
    const int64_t half = int64_t{1} << (level - 1), block = 2 * half;
    for (int64_t first = span.first / block * block; first + half < span.end;) {
      int64_t count = 1;
      while (first >= span.first && first + (count + 1) * block <= span.end) ++count;
      const TokenSpan left = {first, first + half};
      const TokenSpan right = {std::max(left.end, span.first), std::min(first + block, span.end)};
      const bool written = left.end > before_ || p_.options.initial_state.has_value();
      if (right.size() > 0 && written) Blocks(left, right, count, level);
      first += count * block;
    }
  }

  // Tokens of a span and of `count - 1` that follow, each a block later, as batch entries.
  template <class T>
  TensorView<T> Tokens(TensorView<T> view, const TokenSpan& span, int64_t count,
                       int64_t block) const {
    if (view.shape[0] > 1) view.data += b_ * view.strides[0];
    view.data += (span.first - before_) * view.strides[2];
    view.strides[0] = block * view.strides[2];
    view.shape[0] = count;
    view.shape[2] = span.size();
    return view;
  }
  // Of a factor, whose strides are 0 where it broadcasts.
  TensorView<const float> Factor(TensorView<const float> view, const TokenSpan& span, int64_t count,
                                 int64_t block) const {
    if (!view.has_value()) return view;
    view.data += b_ * view.strides[0] + (span.first - before_) * view.strides[2];
    view.strides[0] = block * view.strides[2];
    view.shape = {count, p_.num_kv_heads, span.size(), 1};
    return view;
  }
  // Linear attention from right halves to left ones, and from what arrives at their state. True: an
  // older state is in it.
  bool Linear(const TokenSpan& left, const TokenSpan& right, int64_t count, int64_t block,
              const TensorView<const float>& d_final) {
    const TokenSpan keys = {std::max(left.first, before_), std::max(left.end, before_)};
    const bool given = LoadInitial(left);
    RecurrentOptions o;
    o.scale = 1.0;
    o.causal = false;
    o.log_decay = Factor(p_.options.log_decay, keys, count, block);
    o.beta = Factor(p_.options.beta, keys, count, block);
    RecurrentGradients to;
    to.d_final_state = d_final;
    to.d_q = Tokens(d_queries_.view(), right, count, block);
    to.d_k = Tokens(d_keys_.view(), keys, count, block);
    to.d_v = Tokens(d_values_.view(), keys, count, block);
    if (o.log_decay.has_value()) to.d_log_decay = Tokens(d_gates_.view(), keys, count, block);
    if (o.beta.has_value()) to.d_beta = Tokens(d_betas_.view(), keys, count, block);
    if (given) {
      o.initial_state = state_.view();
      to.d_initial_state = d_state_.view();
    }
    RecurrentBackward(Tokens(queries_.view(), right, count, block),
                      Tokens(p_.k, keys, count, block), Tokens(p_.v, keys, count, block),
                      Tokens(arriving_.view(), right, count, block), o, to, &pool_);
    return given;
  }

  void Blocks(const TokenSpan& left, const TokenSpan& right, int64_t count, int64_t level) {
    LoadQueries(right, count, level);
    const bool given = Linear(left, right, count, int64_t{1} << level, {});
    ForEachHead([&](int64_t h, LevelsHead& own) {
      for (int64_t n = 0; n < count; ++n) {
        const int64_t later = n << level;
        StoreQueries(h, own, {right.first + later, right.end + later}, level);
        StoreKeys(h, own, {left.first + later, left.end + later});
      }
      if (given) StoreInitial(h, left);
    });
  }

  double& FactorOf(int64_t head, int64_t t) {
    return factors_[static_cast<size_t>(head * p_.kv_len + t)];
  }
  double Weight(int64_t head, int64_t t, int64_t level) const {
    return double{p_.options.level_weights(b_, head, t, level)};
  }

  // Queries of right halves times their weights, and what arrives at them; zeros where nothing
  // passes.
  void LoadQueries(const TokenSpan& right, int64_t count, int64_t level) {
    ForEachHead([&](int64_t h, LevelsHead& own) {
      for (int64_t n = 0; n < count; ++n) {
        const int64_t first = right.first - before_ + (n << level);
        double passed = double{p_.scale};
        for (int64_t t = first; t < first + right.size(); ++t) {
          passed *= own.Gate(t);
          for (int64_t head = h * p_.group; head < (h + 1) * p_.group; ++head) {
            FactorOf(head, t) = passed;
            LoadQuery(head, t, passed == 0, static_cast<float>(passed * Weight(head, t, level)));
          }
        }
      }
    });
  }

  void LoadQuery(int64_t head, int64_t t, bool hidden, float weight) {
    float* const query = RowOf(queries_.view(), 0, head, t);
    float* const arriving = RowOf(arriving_.view(), 0, head, t);
    if (hidden) {
      std::fill_n(query, p_.head_dim, 0.0f);
      std::fill_n(arriving, p_.head_dim_v, 0.0f);
    } else {
      ScaleRow(RowOf(p_.q, b_, head, t), p_.head_dim, weight, query);
      ScaleRow(RowOf(g_.d_out, b_, head, t), p_.head_dim_v, 1, arriving);
    }
  }

  // What queries get; it passes the decays from the first token of the right half to their own.
  void StoreQueries(int64_t h, LevelsHead& own, const TokenSpan& right, int64_t level) {
    double sum = 0;
    for (int64_t t = right.end - before_; t-- > right.first - before_;) {
      for (int64_t head = h * p_.group; head < (h + 1) * p_.group; ++head) {
        if (FactorOf(head, t) != 0) sum += StoreQuery(head, t, level);
      }
      own.d_decay[static_cast<size_t>(t)] += sum;
    }
  }

  double StoreQuery(int64_t head, int64_t t, int64_t level) {
    const double factor = FactorOf(head, t), weight = factor * Weight(head, t, level);
    const float* const d_query = RowOf(d_queries_.view(), 0, head, t);
    const double along = DotRows(RowOf(p_.q, b_, head, t), d_query, p_.head_dim);
    AddRow(to_.d_q, {b_, head, t}, static_cast<float>(weight), d_query);
    if (to_.d_level_weights.has_value()) {
      to_.d_level_weights(b_, head, t, level) = static_cast<float>(factor * along);
    }
    return weight * along;
  }

  void StoreKeys(int64_t h, LevelsHead& own, const TokenSpan& keys) {
    for (int64_t t = std::max<int64_t>(keys.first - before_, 0); t < keys.end - before_; ++t) {
      const size_t token = static_cast<size_t>(t);
      AddRow(to_.d_k, {b_, h, t}, 1, RowOf(d_keys_.view(), 0, h, t));
      AddRow(to_.d_v, {b_, h, t}, 1, RowOf(d_values_.view(), 0, h, t));
      if (p_.options.log_decay.has_value()) {
        own.d_decay[token] += double{d_gates_.view()(0, h, t, 0)};
      }
      if (p_.options.beta.has_value()) own.d_beta[token] += double{d_betas_.view()(0, h, t, 0)};
    }
  }

  // The initial states whose tokens lie in a span.
  template <class Body>
  void ForEachInitial(const TokenSpan& span, const Body& body) const {
    if (!p_.options.initial_state.has_value()) return;
    for (int64_t l = 0; l < p_.num_states; ++l) {
      const int64_t first = before_ >> (l + 1) << (l + 1);
      if ((before_ >> l & 1) != 0 && first >= span.first && first < span.end) body(l);
    }
  }

  // Their sum; false if there are none.
  bool LoadInitial(const TokenSpan& span) {
    bool any = false;
    ForEachInitial(span, [&](int64_t l) {
      ForEachHead([&](int64_t h, LevelsHead&) {
        for (int64_t c = 0; c < p_.head_dim; ++c) {
          float* const sum = RowOf(state_.view(), 0, h, c);
          const float* const row = RowOf(p_.options.initial_state, b_, h, l * p_.head_dim + c);
          for (int64_t e = 0; e < p_.head_dim_v; ++e) sum[e] = any ? sum[e] + row[e] : row[e];
        }
      });
      any = true;
    });
    return any;
  }

  void StoreInitial(int64_t h, const TokenSpan& span) {
    ForEachInitial(span, [&](int64_t l) {
      for (int64_t c = 0; c < p_.head_dim; ++c) {
        AddRow(to_.d_initial_state, {b_, h, l * p_.head_dim + c}, 1,
               RowOf(d_state_.view(), 0, h, c));
      }
    });
  }

  // A state of 2^l tokens, which is read as it is after the last token.
  void FinalState(int64_t l) {
    const int64_t first = after_ >> (l + 1) << (l + 1);
    const TokenSpan span = {first, first + (int64_t{1} << l)}, nothing = {before_, before_};
    const bool written = span.end > before_ || p_.options.initial_state.has_value();
    if (!to_.d_final_state.has_value() || !written) return;
    const int64_t behind = std::max(span.end - before_, int64_t{0});
    LoadArriving(l, behind);
    const bool given = Linear(span, nothing, 1, 1, d_final_.view());
    ForEachHead([&](int64_t h, LevelsHead& own) {
      if (passed_[static_cast<size_t>(h)] == 0) return;
      const double through = Through(h, span, given);
      for (int64_t t = behind; t < after_ - before_; ++t) {
        own.d_decay[static_cast<size_t>(t)] += through;
      }
      StoreKeys(h, own, span);
      if (given) StoreInitial(h, span);
    });
  }

  // What arrives at the state of a level, through the decays from token `end` on.
  void LoadArriving(int64_t level, int64_t end) {
    ForEachHead([&](int64_t h, LevelsHead& own) {
      double& passed = passed_[static_cast<size_t>(h)] = 1;
      for (int64_t t = end; t < after_ - before_; ++t) passed *= own.Gate(t);
      for (int64_t c = 0; c < p_.head_dim; ++c) {
        ScaleRow(RowOf(to_.d_final_state, b_, h, level * p_.head_dim + c), p_.head_dim_v,
                 static_cast<float>(passed), RowOf(d_final_.view(), 0, h, c));
      }
    });
  }

  // What the state of a span gives to L: it is the sum of what its keys wrote.
  double Through(int64_t h, const TokenSpan& keys, bool given) const {
    double sum = 0;
    for (int64_t t = std::max<int64_t>(keys.first - before_, 0); t < keys.end - before_; ++t) {
      sum += DotRows(RowOf(p_.k, b_, h, t), RowOf(d_keys_.view(), 0, h, t), p_.head_dim);
    }
    for (int64_t c = 0; c < p_.head_dim && given; ++c) {
      sum += DotRows(RowOf(state_.view(), 0, h, c), RowOf(d_state_.view(), 0, h, c), p_.head_dim_v);
    }
    return sum;
  }

  const RecurrentBackwardProblem& g_;
  const RecurrentProblem& p_;
  const RecurrentGradients& to_;
  ThreadPool& pool_;
  LevelsChunk chunk_;
  SharedSums sums_;
  std::vector<LevelsHead> heads_;
  // Rows of one batch entry; those of queries are times their weights.
  OwnedTensor queries_, d_queries_, arriving_, d_keys_, d_values_, d_gates_, d_betas_;
  OwnedTensor state_, d_state_, d_final_;  // [1, num_kv_heads, head_dim, head_dim_v]
  ScratchVector<double> factors_;          // [num_heads][kv_len]: scale times the decays
  ScratchVector<double> passed_;           // [num_kv_heads]
  int64_t b_ = 0, before_ = 0, after_ = 0;
};

}  // namespace

void RunLevelsBackward(const RecurrentBackwardProblem& g, ThreadPool& pool) {
  LevelsBackward backward(g, pool);
  if (DryRun::Current() == nullptr) backward.Run();
}

}  // namespace heed
