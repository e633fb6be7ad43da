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

#include "hwy/highway.h"
#include "src/recurrent/chunk-inl.h"
#include "src/recurrent/head_state-inl.h"
#include "src/recurrent/meet-inl.h"
#include "src/recurrent/problem.h"
#include "src/recurrent/token-inl.h"
#include "src/simd/pack-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Every `step`-th row, from `first` on: the others are zeros.
struct RowStep {
  size_t first = 0;
  size_t step = 1;
};

// All tokens of one KV head of one batch entry.
class RecurrentLoop : protected HeadState {
 public:
  RecurrentLoop(const RecurrentPlan& plan, int64_t batch, int64_t kv_head,
                RecurrentScratch& scratch)
      : HeadState(plan, batch, kv_head, scratch), meeting_(plan, scratch) {}

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

 protected:
  size_t FirstQueryHead() const { return static_cast<size_t>(h_ * p_.group); }

  void RunChunk(int64_t first, size_t count) {
    LoadTokens(first, count);
    const size_t rows = count * p_.parts();
    if (!IsFinite(rows)) return RunTokens(first, count);
    if (p_.has_peaks() && !RaisePeaks(0, count)) return RunTokens(first, count);
    if (NeedsMeeting()) meeting_.PackKeys(s_.keys.get(), rows);
    if (p_.erases()) Erase(rows);
    for (size_t g = 0; g < static_cast<size_t>(p_.group) && o_.causal; ++g) {
      Answer(first, count, FirstQueryHead() + g);
    }
    Write(rows);
  }

  bool NeedsMeeting() const { return !p_.decays_channels && (o_.causal || p_.erases()); }

  // One token after the other.
  void RunTokens(int64_t first, size_t count) {
    const size_t parts = p_.parts();
    for (size_t i = 0; i < count; ++i) {
      const int64_t t = first + static_cast<int64_t>(i);
      if (o_.causal && p_.reads_first()) ReadOnly(t, 1);
      if (p_.has_peaks()) RaisePeaks(i, 1);
      for (size_t r = i * parts; r < (i + 1) * parts; ++r) WriteRow(r);
      if (o_.causal && !p_.reads_first()) ReadOnly(t, 1);
    }
  }

  void WriteRow(size_t r) {
    const DF d;
    const float* key = s_.keys.get() + r * plan_.rows;
    const Token token = {
        .keys = key,
        .decays = o_.log_decay.has_value() ? s_.decays.get() + r * plan_.decay_step : nullptr,
        .per_channel = p_.decays_channels,
        .beta = s_.betas.get()[r],
        .erasers = p_.parts() > 1 ? s_.erasers.get() + r * plan_.rows
                   : o_.delta     ? key
                                  : nullptr,
        .reads_undecayed = p_.parts() > 1};
    for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
      const float* values = WritePanel(e) + r * PanelCols();
      for (size_t x = 0; x < PanelCols(); x += hn::Lanes(d)) {
        WriteToken(token, plan_.dim, hn::Load(d, values + x),
                   {StatePanel(e) + x, PanelCols(), hn::Lanes(d)});
      }
    }
  }

  // Rows, each times all factors that it reaches through: in `along`, or as they are without
  // factors.
  const float* Decayed(const float* rows, size_t count, Reach reach) {
    if (!o_.log_decay.has_value()) return rows;
    float* to = s_.along.get();
    DecayRows(rows, count, reach, to);
    std::fill(to + count * plan_.rows, to + RoundUp(count, kTileRows) * plan_.rows, 0.0f);
    return to;
  }

  // The same, into `to`, which may be `rows`.
  void DecayRows(const float* rows, size_t count, Reach reach, float* to) const {
    const size_t width = plan_.rows;
    if (p_.decays_channels) {
      const DF d;
      for (size_t c = 0; c < width; c += hn::Lanes(d)) {
        VF passed = hn::Set(d, 1.0f);
        for (size_t i = 0; i < count; ++i) {
          const VF before = passed;
          passed = hn::Mul(passed, hn::Load(d, s_.decays.get() + i * width + c));
          hn::Store(hn::Mul(hn::Load(d, rows + i * width + c),
                            reach == Reach::kUndecayed ? before : passed),
                    d, to + i * width + c);
        }
      }
      return;
    }
    float passed = 1.0f;
    for (size_t i = 0; i < count; ++i) {
      const float before = passed;
      passed *= s_.decays.get()[i];
      ScaleRow(rows + i * width, width, reach == Reach::kUndecayed ? before : passed,
               to + i * width);
    }
  }

  // A register tile of the panel of state columns from e on. The last panel often holds one column,
  // that of the sum of weights: half a panel is enough for it, and its second half stays as it is.
  // WebAssembly computes whole panels: its module has no room for the code.
  template <class Layout, class Update>
  HWY_INLINE void PanelTile(size_t e, const float* a, const float* panel, size_t depth, float* to,
                            size_t stride, Update update, Layout layout) const {
    const MultiplyAccumulate op;
    if (!HWY_ARCH_WASM && e + hn::Lanes(DF()) >= static_cast<size_t>(p_.state_cols)) {
      return RegisterTile<Layout, kTileRows, 1>(op, a, panel, depth, to, stride, update, layout);
    }
    RegisterTile<Layout, kTileRows>(op, a, panel, depth, to, stride, update, layout);
  }

  // results = rows times a state, or so much is added to them.
  template <class Update>
  void TimesState(const float* rows, size_t count, const float* state, Update update,
                  RowStep step = {}) {
    for (size_t i = step.first; i < count; i += kTileRows * step.step) {
      for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
        PanelTile<ARows>(e, rows + i * plan_.rows, state + e * plan_.rows, plan_.dim,
                         s_.results.get() + i * plan_.cols + e, step.step * plan_.cols, update,
                         {step.step * plan_.rows});
      }
    }
  }
  void TimesState(const float* rows, size_t count, RowStep step = {}) {
    TimesState(rows, count, s_.state.get(), StoreOnly(), step);
  }

  // Values become what is written: u_i = beta_i (v_i - what state and earlier writes answer).
  void Erase(size_t count) {
    const float* erasers = p_.parts() > 1 ? s_.erasers.get() : s_.keys.get();
    const Reach reach = p_.parts() > 1 ? Reach::kUndecayed : Reach::kEarlier;
    meeting_.Meet(erasers, count, reach, 0);
    TimesState(Decayed(erasers, count, reach), count, RowStep{0, p_.parts()});
    for (size_t e = 0; e < plan_.cols; e += PanelCols()) ErasePanel(count, e);
  }

  void ErasePanel(size_t count, size_t e) {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    float* writes = WritePanel(e);
    const size_t parts = p_.parts();
    HWY_ALIGN float answered[kTileRows * PanelCols()];
    for (size_t i = 0; i < count; i += kTileRows * parts) {
      RegisterTile<ARows, kTileRows>(MultiplyAccumulate(), s_.meets.get() + i * kChunk, writes, i,
                                     answered, PanelCols(), StoreOnly(), {parts * kChunk});
      for (size_t r = 0; r < kTileRows && i + r * parts < count; ++r) {
        const size_t row = i + r * parts;
        const float* meets = s_.meets.get() + row * kChunk;
        const VF beta = hn::Set(d, s_.betas.get()[row]);
        for (size_t x = 0; x < PanelCols(); x += lanes) {
          VF known = hn::Add(hn::LoadU(d, answered + r * PanelCols() + x),
                             hn::LoadU(d, s_.results.get() + row * plan_.cols + e + x));
          for (size_t j = i; j < row; ++j) {
            known = Fma(hn::Set(d, meets[j]), hn::LoadU(d, writes + j * PanelCols() + x), known);
          }
          float* write = writes + row * PanelCols() + x;
          hn::StoreU(hn::Mul(beta, hn::Sub(hn::LoadU(d, write), known)), d, write);
        }
      }
    }
  }

  // Outputs of a query head for the tokens of the chunk.
  void Answer(int64_t first, size_t count, size_t head) {
    float* queries = s_.queries.get();
    const size_t parts = p_.parts(), rows = count * parts;
    const Reach reach = p_.reads_first() ? Reach::kUndecayed : Reach::kOwn;
    LoadFeatures(Side::kQuery, static_cast<int64_t>(head), first, count, parts, queries);
    meeting_.Meet(queries, rows, reach, parts - 1);
    const RowStep step{parts - 1, parts};
    TimesState(Decayed(queries, rows, reach), rows, step);
    AddMeets(rows, step);
    StoreResults(first, count, parts, static_cast<int64_t>(head));
  }

  // results += what the tokens of the chunk give each other.
  void AddMeets(size_t rows, RowStep step = {}) {
    for (size_t i = step.first; i < rows; i += kTileRows * step.step) {
      for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
        PanelTile<ARows>(e, s_.meets.get() + i * kChunk, WritePanel(e),
                         std::min(rows, i + kTileRows * step.step),
                         s_.results.get() + i * plan_.cols + e, step.step * plan_.cols,
                         AddToStored(), {step.step * kChunk});
      }
    }
  }

  // Outputs of all query heads of the group from the state alone.
  void ReadOnly(int64_t first, size_t count) {
    for (size_t g = 0; g < static_cast<size_t>(p_.group); ++g) {
      const int64_t head = static_cast<int64_t>(FirstQueryHead() + g);
      LoadFeatures(Side::kQuery, head, first, count, 1, s_.queries.get());
      TimesState(s_.queries.get(), count);
      StoreResults(first, count, 1, head);
    }
  }

  // Of the last of every `parts` rows.
  void StoreResults(int64_t first, size_t count, size_t parts, int64_t head) {
    const size_t width = static_cast<size_t>(p_.head_dim_v);
    if (width == 0) return;
    for (size_t i = 0; i < count; ++i) {
      const int64_t t = first + static_cast<int64_t>(i);
      float* to = &p_.outputs.output(b_, head, t, 0);
      StoreAnswer(o_.normalize, s_.results.get() + (i * parts + parts - 1) * plan_.cols, width, to);
      AddOwnValue(p_, b_, head, t, to);
    }
  }

  // Decays a state over the whole chunk.
  void DecayState(size_t count, float* state) const {
    const size_t width = plan_.rows;
    if (!p_.decays_channels) {
      // Rounded once: equal factors would be rounded alike in every chunk, which adds up.
      double passed = 1;
      for (size_t i = count; i-- > 0;) passed *= double{s_.decays.get()[i]};
      return ScaleRow(state, width * plan_.cols, static_cast<float>(passed), state);
    }
    const DF d;
    const size_t lanes = hn::Lanes(d);
    HWY_ALIGN float all[hn::MaxLanes(DF())];
    for (size_t c = 0; c < width; c += lanes) {
      VF passed = hn::Set(d, 1.0f);
      for (size_t i = count; i-- > 0;) {
        passed = hn::Mul(passed, hn::Load(d, s_.decays.get() + i * width + c));
      }
      hn::Store(passed, d, all);
      for (size_t x = 0; x < lanes; ++x) ScaleRowOfState(state, c + x, all[x]);
    }
  }

  // Rows, each times the factors of all tokens after it.
  void DecayToEnd(const float* rows, size_t count, float* to) const {
    const size_t width = plan_.rows;
    if (!p_.decays_channels) {
      float passed = 1.0f;
      for (size_t i = count; i-- > 0;) {
        ScaleRow(rows + i * width, width, passed, to + i * width);
        passed *= s_.decays.get()[i];
      }
      return;
    }
    const DF d;
    for (size_t c = 0; c < width; c += hn::Lanes(d)) {
      VF passed = hn::Set(d, 1.0f);
      for (size_t i = count; i-- > 0;) {
        hn::Store(hn::Mul(hn::Load(d, rows + i * width + c), passed), d, to + i * width + c);
        passed = hn::Mul(passed, hn::Load(d, s_.decays.get() + i * width + c));
      }
    }
  }

  // Keys, each decayed from its token to the end of the chunk.
  const float* KeysAtEnd(size_t count) {
    if (!o_.log_decay.has_value()) return s_.keys.get();
    DecayToEnd(s_.keys.get(), count, s_.along.get());
    return s_.along.get();
  }

  // state = its decay over the whole chunk + keys, decayed from their token on, times writes.
  void Write(size_t count) {
    if (o_.log_decay.has_value()) DecayState(count, s_.state.get());
    AddWrites(KeysAtEnd(count), count);
  }

  void AddWrites(const float* keys, size_t count) {
    AddOuter(keys, s_.writes.get(), count, s_.state.get());
  }

  // state += rows^T values, `values` in panels as writes are.
  void AddOuter(const float* rows, const float* values, size_t count, float* state) const {
    for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
      for (size_t c = 0; c < plan_.dim; c += kTileRows) {
        PanelTile<AColumns>(e, rows + c, values + e * kChunkRows, count,
                            state + e * plan_.rows + c * PanelCols(), PanelCols(), AddToStored(),
                            {plan_.rows});
      }
    }
  }

  Meeting meeting_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_RECURRENT_LOOP_INL_H_
