// The recurrent loop of one KV head: chunks of tokens as matrix products, or token by token.
//
// Within a chunk, decays are products of factors along the way from one token to another, never
// quotients: nothing overflows, and a factor of 0 forgets exactly.
#if defined(HEED_RECURRENT_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_RECURRENT_LOOP_INL_H_
#undef HEED_RECURRENT_LOOP_INL_H_
#else
#define HEED_RECURRENT_LOOP_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "src/recurrent/chunk-inl.h"
#include "src/recurrent/meet-inl.h"
#include "src/recurrent/problem.h"
#include "src/recurrent/token-inl.h"
#include "src/simd/pack-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// All tokens of one KV head of one batch entry.
class RecurrentLoop {
 public:
  RecurrentLoop(const RecurrentPlan& plan, int64_t batch, int64_t kv_head,
                RecurrentScratch& scratch)
      : plan_(plan),
        p_(*plan.problem),
        o_(p_.options),
        b_(batch),
        h_(kv_head),
        s_(scratch),
        meeting_(plan, scratch) {}

  void Run() {
    LoadState();
    const int64_t length = p_.KeyLength(b_);
    const int64_t step = static_cast<int64_t>(plan_.chunk_len);
    for (int64_t t = 0; t < length; t += step) {
      RunChunk(t, static_cast<size_t>(std::min(step, length - t)));
    }
    // Queries that no token of their own stands before: all of them when not causal, and those
    // beyond the length.
    for (int64_t t = o_.causal ? length : 0; t < p_.q_len; t += step) {
      ReadOnly(t, static_cast<size_t>(std::min(step, p_.q_len - t)));
    }
    StoreState();
  }

 private:
  size_t FirstQueryHead() const { return static_cast<size_t>(h_ * p_.group); }

  void LoadState() {
    std::fill_n(s_.state.get(), plan_.rows * plan_.cols, 0.0f);
    if (!o_.initial_state.has_value()) return;
    for (size_t c = 0; c < plan_.dim; ++c) {
      for (size_t e = 0; e < static_cast<size_t>(p_.state_cols); ++e) {
        StateAt(c, e) = o_.initial_state(b_, h_, static_cast<int64_t>(c), static_cast<int64_t>(e));
      }
    }
  }

  void StoreState() {
    const TensorView<float>& to = p_.outputs.final_state;
    if (!to.has_value()) return;
    for (size_t c = 0; c < plan_.dim; ++c) {
      for (size_t e = 0; e < static_cast<size_t>(p_.state_cols); ++e) {
        to(b_, h_, static_cast<int64_t>(c), static_cast<int64_t>(e)) = StateAt(c, e);
      }
    }
  }

  float& StateAt(size_t c, size_t e) {
    const size_t cols = PanelCols();
    return s_.state.get()[(e / cols * plan_.rows + c) * cols + e % cols];
  }
  float* StatePanel(size_t e) { return s_.state.get() + e * plan_.rows; }
  float* WritePanel(size_t e) { return s_.writes.get() + e * kChunkRows; }

  void RunChunk(int64_t first, size_t count) {
    LoadTokens(first, count);
    if (!IsFinite(count)) return RunTokens(first, count);
    if (NeedsMeeting()) meeting_.PackKeys(s_.keys.get(), count);
    if (o_.delta) Erase(count);
    if (o_.causal) {
      for (size_t g = 0; g < static_cast<size_t>(p_.group); ++g) {
        Answer(first, count, FirstQueryHead() + g);
      }
    }
    Write(count);
  }

  bool NeedsMeeting() const { return !p_.decays_channels && (o_.causal || o_.delta); }

  // Features of keys, values times beta, factors. Rows up to whole register tiles are zeros.
  void LoadTokens(int64_t first, size_t count) {
    LoadFeatures(p_.k, h_, first, count, 1.0f, s_.keys.get());
    LoadValues(first, count);
    if (!o_.log_decay.has_value()) return;
    std::fill_n(s_.decays.get(), DecayFloats(count), 1.0f);
    for (size_t i = 0; i < count; ++i) {
      const float* from = &o_.log_decay(b_, h_, first + static_cast<int64_t>(i), 0);
      MapRow(from, p_.decays_channels ? plan_.dim : 1, s_.decays.get() + i * plan_.decay_step,
             [](DF d, VF x) HWY_ATTR { return ExpNonPositive(d, x); });
    }
  }

  void LoadValues(int64_t first, size_t count) {
    const size_t width = static_cast<size_t>(p_.head_dim_v);
    for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
      std::fill(WritePanel(e) + (e < width ? count : 0) * PanelCols(), WritePanel(e + PanelCols()),
                0.0f);
    }
    if (width > 0) {
      const float* rows = &p_.v(b_, h_, first, 0);
      PackPanels(Rows{rows, p_.v.strides[2]}, count, width, kChunkRows, s_.writes.get());
    }
    for (size_t i = 0; i < count; ++i) {
      const float beta =
          o_.beta.has_value() ? o_.beta(b_, h_, first + static_cast<int64_t>(i), 0) : 1.0f;
      s_.betas.get()[i] = beta;
      if (o_.normalize) {
        WritePanel(width / PanelCols() * PanelCols())[i * PanelCols() + width % PanelCols()] = 1.0f;
      }
      if (o_.delta || beta == 1.0f) continue;
      for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
        float* row = WritePanel(e) + i * PanelCols();
        for (size_t x = 0; x < PanelCols(); ++x) row[x] *= beta;
      }
    }
  }

  // Factors of `count` tokens, in whole vectors.
  size_t DecayFloats(size_t count) const {
    return RoundUp(count * plan_.decay_step, hn::Lanes(DF()));
  }

  void LoadFeatures(const TensorView<const float>& from, int64_t head, int64_t first, size_t count,
                    float factor, float* to) {
    const size_t whole = plan_.dim == plan_.rows ? count : 0;
    std::fill(to + whole * plan_.rows, to + RoundUp(count, kTileRows) * plan_.rows, 0.0f);
    if (plan_.dim == 0) return;
    for (size_t i = 0; i < count; ++i) {
      Features(o_.feature_map, &from(b_, head, first + static_cast<int64_t>(i), 0), plan_.dim,
               factor, to + i * plan_.rows);
    }
  }

  // A token that holds NaN or an infinity must not reach those before it, as 0 x NaN would.
  bool IsFinite(size_t count) const {
    bool finite = AllFinite(s_.keys.get(), count * plan_.rows);
    finite = finite && AllFinite(s_.writes.get(), kChunkRows * plan_.cols);
    if (o_.log_decay.has_value()) {
      finite = finite && AllFinite(s_.decays.get(), DecayFloats(count));
    }
    for (size_t i = 0; i < count; ++i) finite = finite && std::isfinite(s_.betas.get()[i]);
    return finite;
  }

  // `count` is a multiple of the vector's.
  static bool AllFinite(const float* from, size_t count) {
    // In turns: sums of one chain would wait for each other.
    const DF d;
    const size_t lanes = hn::Lanes(d);
    VF poison[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    size_t n = 0;
    for (; n + 4 * lanes <= count; n += 4 * lanes) {
      for (size_t turn = 0; turn < 4; ++turn) {
        poison[turn] = Fma(hn::Load(d, from + n + turn * lanes), hn::Zero(d), poison[turn]);
      }
    }
    for (; n < count; n += lanes) poison[0] = Fma(hn::Load(d, from + n), hn::Zero(d), poison[0]);
    const VF all = hn::Add(hn::Add(poison[0], poison[1]), hn::Add(poison[2], poison[3]));
    return hn::ReduceSum(d, all) == 0.0f;
  }

  // One token after the other.
  void RunTokens(int64_t first, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const int64_t t = first + static_cast<int64_t>(i);
      const Token token = {
          .keys = s_.keys.get() + i * plan_.rows,
          .decays = o_.log_decay.has_value() ? s_.decays.get() + i * plan_.decay_step : nullptr,
          .per_channel = p_.decays_channels,
          .beta = s_.betas.get()[i],
          .delta = o_.delta};
      const DF d;
      for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
        const float* values = WritePanel(e) + i * PanelCols();
        for (size_t x = 0; x < PanelCols(); x += hn::Lanes(d)) {
          WriteToken(token, plan_.dim, hn::Load(d, values + x),
                     {StatePanel(e) + x, PanelCols(), hn::Lanes(d)});
        }
      }
      if (o_.causal) ReadOnly(t, 1);
    }
  }

  // Rows, each times all factors up to its token: in `along`, or as they are without factors.
  const float* Decayed(const float* rows, size_t count) {
    if (!o_.log_decay.has_value()) return rows;
    const size_t width = plan_.rows;
    float* to = s_.along.get();
    if (p_.decays_channels) {
      const DF d;
      for (size_t c = 0; c < width; c += hn::Lanes(d)) {
        VF passed = hn::Set(d, 1.0f);
        for (size_t i = 0; i < count; ++i) {
          passed = hn::Mul(passed, hn::Load(d, s_.decays.get() + i * width + c));
          hn::Store(hn::Mul(hn::Load(d, rows + i * width + c), passed), d, to + i * width + c);
        }
      }
    } else {
      float passed = 1.0f;
      for (size_t i = 0; i < count; ++i) {
        passed *= s_.decays.get()[i];
        ScaleRow(rows + i * width, width, passed, to + i * width);
      }
    }
    std::fill(to + count * width, to + RoundUp(count, kTileRows) * width, 0.0f);
    return to;
  }

  // results = rows times the state.
  void TimesState(const float* rows, size_t count) {
    for (size_t i = 0; i < count; i += kTileRows) {
      for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
        RegisterTile<ARows, kTileRows>(MultiplyAccumulate(), rows + i * plan_.rows, StatePanel(e),
                                       plan_.dim, s_.results.get() + i * plan_.cols + e, plan_.cols,
                                       StoreOnly(), {plan_.rows});
      }
    }
  }

  // Values become what is written: u_i = beta_i (v_i - what state and earlier writes answer).
  void Erase(size_t count) {
    meeting_.Meet(s_.keys.get(), count, false);
    TimesState(Decayed(s_.keys.get(), count), count);
    for (size_t e = 0; e < plan_.cols; e += PanelCols()) ErasePanel(count, e);
  }

  void ErasePanel(size_t count, size_t e) {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    float* writes = WritePanel(e);
    HWY_ALIGN float answered[kTileRows * PanelCols()];
    for (size_t i = 0; i < count; i += kTileRows) {
      RegisterTile<ALayout<1, kChunk>, kTileRows>(MultiplyAccumulate(), s_.meets.get() + i * kChunk,
                                                  writes, i, answered, PanelCols(), StoreOnly());
      for (size_t r = 0; r < std::min(kTileRows, count - i); ++r) {
        const float* meets = s_.meets.get() + (i + r) * kChunk;
        const VF beta = hn::Set(d, s_.betas.get()[i + r]);
        for (size_t x = 0; x < PanelCols(); x += lanes) {
          VF known = hn::Add(hn::LoadU(d, answered + r * PanelCols() + x),
                             hn::LoadU(d, s_.results.get() + (i + r) * plan_.cols + e + x));
          for (size_t j = i; j < i + r; ++j) {
            known = Fma(hn::Set(d, meets[j]), hn::LoadU(d, writes + j * PanelCols() + x), known);
          }
          float* write = writes + (i + r) * PanelCols() + x;
          hn::StoreU(hn::Mul(beta, hn::Sub(hn::LoadU(d, write), known)), d, write);
        }
      }
    }
  }

  // Outputs of a query head for the tokens of the chunk.
  void Answer(int64_t first, size_t count, size_t head) {
    float* queries = s_.queries.get();
    LoadFeatures(p_.q, static_cast<int64_t>(head), first, count, p_.scale, queries);
    meeting_.Meet(queries, count, true);
    TimesState(Decayed(queries, count), count);
    for (size_t i = 0; i < count; i += kTileRows) {
      for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
        RegisterTile<ALayout<1, kChunk>, kTileRows>(
            MultiplyAccumulate(), s_.meets.get() + i * kChunk, WritePanel(e),
            std::min(count, i + kTileRows), s_.results.get() + i * plan_.cols + e, plan_.cols,
            AddToStored());
      }
    }
    StoreResults(first, count, static_cast<int64_t>(head));
  }

  // Outputs of all query heads of the group from the state alone.
  void ReadOnly(int64_t first, size_t count) {
    for (size_t g = 0; g < static_cast<size_t>(p_.group); ++g) {
      const int64_t head = static_cast<int64_t>(FirstQueryHead() + g);
      LoadFeatures(p_.q, head, first, count, p_.scale, s_.queries.get());
      TimesState(s_.queries.get(), count);
      StoreResults(first, count, head);
    }
  }

  void StoreResults(int64_t first, size_t count, int64_t head) {
    const size_t width = static_cast<size_t>(p_.head_dim_v);
    if (width == 0) return;
    for (size_t i = 0; i < count; ++i) {
      const int64_t t = first + static_cast<int64_t>(i);
      float* to = &p_.outputs.output(b_, head, t, 0);
      StoreAnswer(o_.normalize, s_.results.get() + i * plan_.cols, width, to);
      if (o_.skip.empty()) continue;
      AddSkip(o_.skip[static_cast<size_t>(head)], &p_.v(b_, h_, t, 0), width, to);
    }
  }

  // Decays the state over the whole chunk; returns keys, each decayed from its token on.
  const float* DecayState(size_t count) {
    const float* keys = s_.keys.get();
    if (!o_.log_decay.has_value()) return keys;
    const size_t width = plan_.rows;
    float* to = s_.along.get();
    if (!p_.decays_channels) {
      float passed = 1.0f;
      for (size_t i = count; i-- > 0;) {
        ScaleRow(keys + i * width, width, passed, to + i * width);
        passed *= s_.decays.get()[i];
      }
      ScaleRow(s_.state.get(), width * plan_.cols, passed, s_.state.get());
      return to;
    }
    const DF d;
    const size_t lanes = hn::Lanes(d);
    HWY_ALIGN float all[hn::MaxLanes(DF())];
    for (size_t c = 0; c < width; c += lanes) {
      VF passed = hn::Set(d, 1.0f);
      for (size_t i = count; i-- > 0;) {
        hn::Store(hn::Mul(hn::Load(d, keys + i * width + c), passed), d, to + i * width + c);
        passed = hn::Mul(passed, hn::Load(d, s_.decays.get() + i * width + c));
      }
      hn::Store(passed, d, all);
      for (size_t x = 0; x < lanes; ++x) ScaleStateRow(c + x, all[x]);
    }
    return to;
  }

  // state = its decay over the whole chunk + keys, decayed from their token on, times writes.
  void Write(size_t count) {
    const float* keys = DecayState(count);
    for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
      for (size_t c = 0; c < plan_.dim; c += kTileRows) {
        RegisterTile<AColumns, kTileRows>(MultiplyAccumulate(), keys + c, WritePanel(e), count,
                                          StatePanel(e) + c * PanelCols(), PanelCols(),
                                          AddToStored(), {plan_.rows});
      }
    }
  }

  void ScaleStateRow(size_t c, float factor) {
    const DF d;
    const VF by = hn::Set(d, factor);
    for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
      float* row = StatePanel(e) + c * PanelCols();
      for (size_t x = 0; x < PanelCols(); x += hn::Lanes(d)) {
        hn::Store(hn::Mul(hn::Load(d, row + x), by), d, row + x);
      }
    }
  }

  const RecurrentPlan& plan_;
  const RecurrentProblem& p_;
  const RecurrentOptions& o_;
  int64_t b_, h_;
  RecurrentScratch& s_;
  Meeting meeting_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_RECURRENT_LOOP_INL_H_
