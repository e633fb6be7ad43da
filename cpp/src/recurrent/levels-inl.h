// The recurrent loop of one KV head whose state is a list of states, one for each power of two: a
// Fenwick tree of the tokens so far. After n tokens state l holds 2^l of them where bit l of n is
// set, the latest in the smallest.
#if defined(HEED_RECURRENT_LEVELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_RECURRENT_LEVELS_INL_H_
#undef HEED_RECURRENT_LEVELS_INL_H_
#else
#define HEED_RECURRENT_LEVELS_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cfloat>

#include "hwy/highway.h"
#include "src/recurrent/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Old states that nothing refreshes would fade into subnormal numbers, with which arithmetic is
// several times as slow (8192 tokens of 8 heads of 64, AVX2: 320 ms instead of 130): they become 0.
HWY_INLINE VF Faded(DF d, VF x) {
  return hn::IfThenZeroElse(hn::Lt(hn::Abs(x), hn::Set(d, FLT_MIN)), x);
}

class LevelLoop : private RecurrentLoop {
 public:
  using RecurrentLoop::RecurrentLoop;

  void Run() {
    LoadLevels();
    const int64_t length = p_.KeyLength(b_);
    const int64_t whole = static_cast<int64_t>(std::bit_floor(plan_.chunk_len));
    for (int64_t t = 0; t < length;) {
      // Chunks begin at multiples of their length: then all of their tokens see the same states.
      const int64_t room = whole - p_.Position(b_, t) % whole;
      const int64_t count = std::min(room, length - t);
      RunAligned(t, static_cast<size_t>(count), count == whole);
      t += count;
    }
    for (int64_t g = 0; g < p_.group && p_.head_dim_v > 0; ++g) {
      for (int64_t t = length; t < p_.q_len; ++t) {
        std::fill_n(&p_.outputs.output(b_, h_ * p_.group + g, t, 0), p_.head_dim_v, 0.0f);
      }
    }
    StoreLevels();
  }

 private:
  size_t StateFloats() const { return plan_.rows * plan_.cols; }
  float* Level(size_t l) { return s_.levels.get() + l * StateFloats(); }
  size_t NumLevels() const { return static_cast<size_t>(p_.num_states); }
  static bool IsSet(int64_t n, size_t l) { return (n >> l & 1) != 0; }

  void LoadLevels() {
    std::fill_n(s_.levels.get(), NumLevels() * StateFloats(), 0.0f);
    for (size_t l = 0; l < NumLevels() && o_.initial_state.has_value(); ++l) {
      if (!IsSet(p_.Position(b_, 0), l)) continue;
      CopyFromInitialState(l * plan_.dim);
      std::copy_n(s_.state.get(), StateFloats(), Level(l));
    }
    std::fill_n(s_.state.get(), StateFloats(), 0.0f);
  }

  void StoreLevels() {
    for (size_t l = 0; l < NumLevels() && p_.outputs.final_state.has_value(); ++l) {
      std::copy_n(Level(l), StateFloats(), s_.state.get());
      CopyToFinalState(l * plan_.dim);
    }
  }

  void RunAligned(int64_t first, size_t count, bool whole) {
    if (whole) {
      LoadTokens(first, count);
      if (IsFinite(count)) return RunPart(first, count);
    }
    for (size_t i = 0; i < count; ++i) {
      LoadTokens(first + static_cast<int64_t>(i), 1);
      RunPart(first + static_cast<int64_t>(i), 1);
    }
  }

  // Tokens that are loaded, a power of two of them.
  void RunPart(int64_t first, size_t count) {
    if (NeedsMeeting()) meeting_.PackKeys(s_.keys.get(), count);
    for (size_t g = 0; g < static_cast<size_t>(p_.group); ++g) {
      AnswerLevels(first, count, static_cast<int64_t>(FirstQueryHead() + g));
    }
    DecayLevels(p_.Position(b_, first), count);
    const float* keys = KeysAtEnd(count);
    std::fill_n(s_.state.get(), StateFloats(), 0.0f);
    AddWrites(keys, count);
    Carry(p_.Position(b_, first), count);
  }

  float Weight(int64_t head, int64_t t, size_t level) const {
    return o_.level_weights(b_, head, t, static_cast<int64_t>(level));
  }

  void AnswerLevels(int64_t first, size_t count, int64_t head) {
    const size_t width = plan_.rows;
    LoadFeatures(Side::kQuery, head, first, count, 1, s_.queries.get());
    meeting_.Meet(s_.queries.get(), count, Reach::kOwn, 0);
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        s_.meets.get()[i * kChunk + j] *= Weight(head, first + static_cast<int64_t>(i),
                                                 static_cast<size_t>(std::bit_width(i ^ j)));
      }
    }
    const float* rows = Decayed(s_.queries.get(), count, Reach::kOwn);
    float* weighed = s_.erasers.get();
    std::fill_n(weighed, RoundUp(count, kTileRows) * width, 0.0f);
    std::fill_n(s_.results.get(), RoundUp(count, kTileRows) * plan_.cols, 0.0f);
    for (size_t l = 0; l < NumLevels(); ++l) {
      if (!IsSet(p_.Position(b_, first), l)) continue;
      for (size_t i = 0; i < count; ++i) {
        ScaleRow(rows + i * width, width, Weight(head, first + static_cast<int64_t>(i), l + 1),
                 weighed + i * width);
      }
      TimesState(weighed, count, Level(l), AddToStored());
    }
    AddMeets(count);
    StoreResults(first, count, 1, head);
  }

  // All states, over the chunk.
  void DecayLevels(int64_t before, size_t count) {
    if (!o_.log_decay.has_value()) return;
    const DF d;
    float* all = s_.erasers.get();
    for (size_t c = 0; c < plan_.rows; c += hn::Lanes(d)) {
      VF passed = hn::Set(d, 1.0f);
      for (size_t i = 0; i < count; ++i) {
        const float* factors = s_.decays.get() + i * plan_.decay_step;
        passed =
            hn::Mul(passed, p_.decays_channels ? hn::Load(d, factors + c) : hn::Set(d, *factors));
      }
      hn::Store(passed, d, all + c);
    }
    for (size_t l = 0; l < NumLevels(); ++l) {
      if (!IsSet(before, l)) continue;
      for (size_t r = 0; r < plan_.rows * (plan_.cols / PanelCols()); ++r) {
        float* row = Level(l) + r * PanelCols();
        const float factor = all[r % plan_.rows];
        MapRow(row, PanelCols(), row,
               [=](DF df, VF x) HWY_ATTR { return Faded(df, hn::Mul(x, hn::Set(df, factor))); });
      }
    }
  }

  // Adds the new state, of `count` tokens, as binary addition does. After 2^num_states tokens the
  // sum has no place: nothing can read it.
  void Carry(int64_t before, size_t count) {
    size_t l = static_cast<size_t>(std::countr_zero(count));
    const DF d;
    for (; l < NumLevels() && IsSet(before, l); ++l) {
      for (size_t n = 0; n < StateFloats(); n += hn::Lanes(d)) {
        float* sum = s_.state.get() + n;
        hn::Store(hn::Add(hn::Load(d, sum), hn::Load(d, Level(l) + n)), d, sum);
      }
      std::fill_n(Level(l), StateFloats(), 0.0f);
    }
    if (l < NumLevels()) std::copy_n(s_.state.get(), StateFloats(), Level(l));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_RECURRENT_LEVELS_INL_H_
