// The recurrent loop of one KV head whose state is a linear model that learns: every token is a
// step of gradient descent, with the gradient at the model that its mini-batch began with.
//
// With u = -rate * gradient for what is written, and 1 appended to keys and queries for the bias,
// this is linear attention; only what is written needs the model first.
#if defined(HEED_RECURRENT_INNER_MODEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_RECURRENT_INNER_MODEL_INL_H_
#undef HEED_RECURRENT_INNER_MODEL_INL_H_
#else
#define HEED_RECURRENT_INNER_MODEL_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "src/recurrent/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Mean and 1 / deviation of a row.
struct RowMoments {
  double mean = 0, inverse = 0;
  RowMoments(const float* row, size_t width) {
    for (size_t e = 0; e < width; ++e) mean += double{row[e]};
    mean /= static_cast<double>(width);
    double squares = 0;
    for (size_t e = 0; e < width; ++e) squares += (row[e] - mean) * (row[e] - mean);
    inverse = 1 / std::sqrt(squares / static_cast<double>(width) + kInnerNormEpsilon);
  }
  double Normed(float x) const { return (x - mean) * inverse; }
};

// The norm of the model of one KV head.
struct InnerNorm {
  const float* weight;  // nullptr: ones
  const float* bias;    // nullptr: zeros
  size_t width;

  InnerNorm(const RecurrentProblem& p, int64_t h) : width(static_cast<size_t>(p.head_dim)) {
    const size_t at = static_cast<size_t>(h) * width;
    weight = p.options.norm_weight.empty() ? nullptr : p.options.norm_weight.data() + at;
    bias = p.options.norm_bias.empty() ? nullptr : p.options.norm_bias.data() + at;
  }
  double Weight(size_t e) const { return weight == nullptr ? 1 : weight[e]; }
  double Bias(size_t e) const { return bias == nullptr ? 0 : bias[e]; }

  // to = query + norm(row).
  void Forward(const float* row, const float* query, float* to) const {
    const RowMoments moments(row, width);
    for (size_t e = 0; e < width; ++e) {
      to[e] = static_cast<float>(query[e] + Weight(e) * moments.Normed(row[e]) + Bias(e));
    }
  }

  // The row becomes -rate times the gradient of |key + norm(row) - value|^2 / 2 by it.
  void Descend(const float* key, const float* value, float rate, float* row) const {
    const RowMoments moments(row, width);
    const auto slope = [&](size_t e) {
      const double normed = moments.Normed(row[e]);
      return Weight(e) * (key[e] + Weight(e) * normed + Bias(e) - value[e]);
    };
    double sum = 0, along = 0;
    for (size_t e = 0; e < width; ++e) {
      sum += slope(e);
      along += slope(e) * moments.Normed(row[e]);
    }
    const double count = static_cast<double>(width);
    for (size_t e = 0; e < width; ++e) {
      const double centred = slope(e) - (sum + moments.Normed(row[e]) * along) / count;
      row[e] = static_cast<float>(-rate * centred * moments.inverse);
    }
  }
};

class InnerModelLoop : private RecurrentLoop {
 public:
  InnerModelLoop(const RecurrentPlan& plan, int64_t batch, int64_t kv_head,
                 RecurrentScratch& scratch)
      : RecurrentLoop(plan, batch, kv_head, scratch), norm_(p_, kv_head) {}

  void Run() {
    LoadModels();
    const int64_t length = p_.KeyLength(b_), mini_batch = o_.mini_batch;
    for (int64_t t = 0; t < length;) {
      const int64_t within = p_.Position(b_, t) % mini_batch;
      if (within == 0) BeginMiniBatch(t);
      const int64_t count =
          std::min({mini_batch - within, length - t, static_cast<int64_t>(plan_.chunk_len)});
      RunPart(t, static_cast<size_t>(count));
      t += count;
    }
    for (int64_t t = length; t < p_.q_len; ++t) Answer(t, 0, 1);
    StoreModels();
  }

 private:
  size_t StateFloats() const { return plan_.rows * plan_.cols; }
  // The model that the mini-batch began with; `state` is the one after the last token.
  float* Begun() { return s_.levels.get(); }

  void LoadModels() {
    std::fill_n(s_.state.get(), StateFloats(), 0.0f);
    const bool given = o_.initial_state.has_value();
    if (given) CopyFromInitialState(0);
    std::copy_n(s_.state.get(), StateFloats(), Begun());
    if (given) CopyFromInitialState(plan_.dim);
  }

  void StoreModels() {
    if (!p_.outputs.final_state.has_value()) return;
    CopyToFinalState(plan_.dim);
    std::copy_n(Begun(), StateFloats(), s_.state.get());
    CopyToFinalState(0);
  }

  // Its first token is t: the model of the last place of the one before is where it begins.
  void BeginMiniBatch(int64_t t) {
    float* begun = Begun();
    float* now = s_.state.get();
    if (!o_.position_rate.empty()) {
      const float rate = p_.PositionRate(b_, t - 1);
      for (size_t n = 0; n < StateFloats(); ++n) now[n] = begun[n] + rate * (now[n] - begun[n]);
    }
    std::copy_n(now, StateFloats(), begun);
  }

  // Tokens of one mini-batch.
  void RunPart(int64_t first, size_t count) {
    LoadFeatures(Side::kKey, h_, first, count, 1, s_.keys.get());
    TimesState(s_.keys.get(), count, Begun(), StoreOnly());
    for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
      std::fill(WritePanel(e), WritePanel(e + PanelCols()), 0.0f);
    }
    for (size_t i = 0; i < count; ++i) {
      const int64_t t = first + static_cast<int64_t>(i);
      float* row = s_.results.get() + i * plan_.cols;
      const float rate = o_.beta.has_value() ? o_.beta(b_, h_, t, 0) : 1.0f;
      norm_.Descend(&p_.k(b_, h_, t, 0), &p_.v(b_, h_, t, 0), rate, row);
      for (size_t e = 0; e < plan_.HeadDim(); ++e) {
        WritePanel(e / PanelCols() * PanelCols())[i * PanelCols() + e % PanelCols()] = row[e];
      }
    }
    const bool finite = AllFinite(s_.keys.get(), count * plan_.rows) &&
                        AllFinite(s_.writes.get(), kChunkRows * plan_.cols);
    if (count > 1 && !finite) {
      for (size_t i = 0; i < count; ++i) RunPart(first + static_cast<int64_t>(i), 1);
      return;
    }
    meeting_.PackKeys(s_.keys.get(), count);
    Answer(first, count, count);
    AddWrites(s_.keys.get(), count);
  }

  // What the model gives for queries, after the tokens of the part that they reach.
  void Answer(int64_t first, size_t written, size_t count) {
    for (int64_t head = h_ * p_.group; head < (h_ + 1) * p_.group; ++head) {
      LoadQueries(first, count, head, [](float rate) { return rate; });
      TimesState(s_.queries.get(), count);
      if (written > 0) {
        meeting_.Meet(s_.queries.get(), count, Reach::kOwn, 0);
        AddMeets(count);
      }
      if (!o_.position_rate.empty()) {
        LoadQueries(first, count, head, [](float rate) { return 1 - rate; });
        TimesState(s_.queries.get(), count, Begun(), AddToStored());
      }
      for (size_t i = 0; i < count && norm_.width > 0; ++i) {
        const int64_t t = first + static_cast<int64_t>(i);
        norm_.Forward(s_.results.get() + i * plan_.cols, &p_.q(b_, head, t, 0),
                      &p_.outputs.output(b_, head, t, 0));
      }
    }
  }

  // Each times the factor that its position_rate gives.
  template <class Factor>
  void LoadQueries(int64_t first, size_t count, int64_t head, Factor factor) {
    LoadFeatures(Side::kQuery, head, first, count, 1, s_.queries.get());
    for (size_t i = 0; i < count && !o_.position_rate.empty(); ++i) {
      const int64_t t = std::min(first + static_cast<int64_t>(i), p_.KeyLength(b_) - 1);
      float* row = s_.queries.get() + i * plan_.rows;
      ScaleRow(row, plan_.rows, factor(p_.PositionRate(b_, t)), row);
    }
  }

  InnerNorm norm_;
};

// One token of one KV head: `state` holds both models.
inline void InnerModelStep(const RecurrentProblem& p, const TensorView<float>& state, int64_t b,
                           int64_t h) {
  const size_t width = static_cast<size_t>(p.head_dim), lanes = hn::Lanes(DF());
  const InnerNorm norm(p, h);
  const bool has_rates = !p.options.position_rate.empty();
  HWY_ALIGN float features[kMaxStepDim];
  HWY_ALIGN float row[kMaxStepDim];
  const auto columns = [&](int64_t half, size_t e) {
    return StateColumns{&state(b, h, half * p.feature_dim, static_cast<int64_t>(e)),
                        static_cast<size_t>(state.strides[2]), std::min(lanes, width - e)};
  };
  // The model that the mini-batch began with, and so much of the steps since.
  const auto read = [&](float rate) {
    for (size_t e = 0; e < width; e += lanes) {
      VF sum = ReadToken(features, width + 1, columns(rate == 1 ? 1 : 0, e));
      if (rate != 0 && rate != 1) {
        const VF now = ReadToken(features, width + 1, columns(1, e));
        sum = Fma(hn::Set(DF(), rate), hn::Sub(now, sum), sum);
      }
      hn::StoreN(sum, DF(), row + e, std::min(lanes, width - e));
    }
  };
  if (p.Position(b, 0) % p.options.mini_batch == 0) {
    for (int64_t c = 0; c < p.feature_dim; ++c) {
      for (int64_t e = 0; e < p.head_dim; ++e) {
        float& begun = state(b, h, c, e);
        float& now = state(b, h, p.feature_dim + c, e);
        if (has_rates) now = begun + p.PositionRate(b, -1) * (now - begun);
        begun = now;
      }
    }
  }
  Features(p, Side::kKey, &p.k(b, h, 0, 0), {b, h, 0}, features);
  read(0);
  const float rate = p.options.beta.has_value() ? p.options.beta(b, h, 0, 0) : 1.0f;
  norm.Descend(&p.k(b, h, 0, 0), &p.v(b, h, 0, 0), rate, row);
  const Token token = {.keys = features,
                       .decays = nullptr,
                       .per_channel = false,
                       .beta = 1,
                       .erasers = nullptr,
                       .reads_undecayed = false};
  for (size_t e = 0; e < width; e += lanes) {
    const VF write = hn::LoadN(DF(), row + e, std::min(lanes, width - e));
    WriteToken(token, width + 1, write, columns(1, e));
  }
  for (int64_t head = h * p.group; head < (h + 1) * p.group; ++head) {
    Features(p, Side::kQuery, &p.q(b, head, 0, 0), {b, head, 0}, features);
    read(p.PositionRate(b, 0));
    norm.Forward(row, &p.q(b, head, 0, 0), &p.outputs.output(b, head, 0, 0));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_RECURRENT_INNER_MODEL_INL_H_
