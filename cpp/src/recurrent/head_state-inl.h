// The state of one KV head, and the rows of the chunk of tokens that comes next.
#if defined(HEED_RECURRENT_HEAD_STATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_RECURRENT_HEAD_STATE_INL_H_
#undef HEED_RECURRENT_HEAD_STATE_INL_H_
#else
#define HEED_RECURRENT_HEAD_STATE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "src/recurrent/chunk-inl.h"
#include "src/recurrent/features-inl.h"
#include "src/recurrent/problem.h"
#include "src/recurrent/token-inl.h"
#include "src/simd/pack-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The peak of a random feature that no key has written.
inline constexpr float kNoPeak = -std::numeric_limits<float>::infinity();
// How far exponents may rise within a chunk: e^-40 of a float is still a float.
inline constexpr float kMaxRise = 40;

class HeadState {
 protected:
  HeadState(const RecurrentPlan& plan, int64_t batch, int64_t kv_head, RecurrentScratch& scratch)
      : plan_(plan), p_(*plan.problem), o_(p_.options), b_(batch), h_(kv_head), s_(scratch) {}

  void LoadState() {
    std::fill_n(s_.state.get(), plan_.rows * plan_.cols, 0.0f);
    // Columns beyond those of the state, which not every product writes.
    std::fill_n(s_.results.get(), kChunkRows * plan_.cols, 0.0f);
    if (p_.has_peaks()) std::fill_n(s_.peaks.get(), plan_.rows, kNoPeak);
    if (!o_.initial_state.has_value()) return;
    CopyFromInitialState(0);
    for (size_t c = 0; c < plan_.dim && p_.has_peaks(); ++c) {
      // Nothing was written where the sum of keys is 0.
      const int64_t row = static_cast<int64_t>(c);
      if (o_.initial_state(b_, h_, row, p_.head_dim_v) == 0) continue;
      s_.peaks.get()[c] = o_.initial_state(b_, h_, row, p_.state_cols);
    }
  }

  void StoreState() {
    const TensorView<float>& to = p_.outputs.final_state;
    if (!to.has_value()) return;
    CopyToFinalState(0);
    for (size_t c = 0; c < plan_.dim && p_.has_peaks(); ++c) {
      const float peak = s_.peaks.get()[c];
      to(b_, h_, static_cast<int64_t>(c), p_.state_cols) = peak == kNoPeak ? 0.0f : peak;
    }
  }

  // The state, from rows `first` on of the caller's and back.
  void CopyFromInitialState(size_t first) {
    for (size_t c = 0; c < plan_.dim; ++c) {
      const float* from = &o_.initial_state(b_, h_, static_cast<int64_t>(first + c), 0);
      ForStateRow(c,
                  [&](size_t e, float* row, size_t width) { std::copy_n(from + e, width, row); });
    }
  }
  void CopyToFinalState(size_t first) {
    for (size_t c = 0; c < plan_.dim; ++c) {
      float* to = &p_.outputs.final_state(b_, h_, static_cast<int64_t>(first + c), 0);
      ForStateRow(c, [&](size_t e, float* row, size_t width) { std::copy_n(row, width, to + e); });
    }
  }

  // The pieces of row c of the state: their first column, where they lie, how wide they are.
  template <class Body>
  void ForStateRow(size_t c, const Body& body) {
    const size_t cols = static_cast<size_t>(p_.state_cols);
    for (size_t e = 0; e < cols; e += PanelCols()) {
      body(e, StatePanel(e) + c * PanelCols(), std::min(PanelCols(), cols - e));
    }
  }
  float* StatePanel(size_t e) { return s_.state.get() + e * plan_.rows; }
  float* WritePanel(size_t e) { return s_.writes.get() + e * kChunkRows; }

  void ScaleStateRow(size_t c, float factor) { ScaleRowOfState(s_.state.get(), c, factor); }

  void ScaleRowOfState(float* state, size_t c, float factor) const {
    const DF d;
    const VF by = hn::Set(d, factor);
    for (size_t e = 0; e < plan_.cols; e += PanelCols()) {
      float* row = state + e * plan_.rows + c * PanelCols();
      for (size_t x = 0; x < PanelCols(); x += hn::Lanes(d)) {
        hn::Store(hn::Mul(hn::Load(d, row + x), by), d, row + x);
      }
    }
  }

  // Features of keys, values times beta, factors. Rows up to whole register tiles are zeros.
  void LoadTokens(int64_t first, size_t count) {
    const size_t parts = p_.parts();
    LoadFeatures(Side::kKey, h_, first, count, parts, s_.keys.get());
    LoadValues(first, count);
    if (parts > 1) LoadErasers(first, count);
    if (!o_.log_decay.has_value()) return;
    std::fill_n(s_.decays.get(), DecayFloats(count * parts), 1.0f);
    for (size_t i = 0; i < count; ++i) {
      const float* from = &o_.log_decay(b_, h_, first + static_cast<int64_t>(i), 0);
      DecayFactors(from, p_.decays_channels ? plan_.dim : 1,
                   s_.decays.get() + i * parts * plan_.decay_step);
    }
  }

  // Erasing is a row before that of the token's value: it decays the state, reads it undecayed and
  // writes what it found, times the rates, with the opposite sign. Values move to every other row.
  void LoadErasers(int64_t first, size_t count) {
    const size_t cols = PanelCols(), width = plan_.rows;
    std::fill_n(s_.erasers.get(), RoundUp(2 * count, kTileRows) * width, 0.0f);
    for (size_t i = 0; i < count; ++i) {
      EraserOf(p_, b_, h_, first + static_cast<int64_t>(i), s_.erasers.get() + 2 * i * width,
               s_.keys.get() + 2 * i * width);
    }
    for (size_t e = 0; e < plan_.cols; e += cols) {
      for (size_t i = count; i-- > 0;) {
        float* row = WritePanel(e) + 2 * i * cols;
        std::copy_n(WritePanel(e) + i * cols, cols, row + cols);
        std::fill_n(row, cols, 0.0f);
      }
    }
    std::fill_n(s_.betas.get(), 2 * count, 1.0f);
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

  // The last of every `parts` rows; the others are zeros. Of random keys their logarithms, before
  // RaisePeaks().
  void LoadFeatures(Side side, int64_t head, int64_t first, size_t count, size_t parts, float* to) {
    const size_t whole = plan_.dim == plan_.rows && parts == 1 ? count : 0;
    std::fill(to + whole * plan_.rows, to + RoundUp(count * parts, kTileRows) * plan_.rows, 0.0f);
    if (plan_.dim == 0) return;
    const TensorView<const float>& from = side == Side::kQuery ? p_.q : p_.k;
    if (p_.has_peaks()) return LoadRandom(side, from, head, first, count, to);
    if (o_.feature_map == FeatureMap::kUser) return LoadUser(side, from, head, first, count, to);
    for (size_t i = 0; i < count; ++i) {
      const int64_t t = first + static_cast<int64_t>(i);
      Features(p_, side, &from(b_, head, t, 0), {b_, head, t},
               to + (i * parts + parts - 1) * plan_.rows);
    }
  }

  // In one call of the user's function.
  void LoadUser(Side side, const TensorView<const float>& from, int64_t head, int64_t first,
                size_t count, float* to) {
    for (size_t i = 0; i < count; ++i) {
      const float* row = &from(b_, head, first + static_cast<int64_t>(i), 0);
      std::copy_n(row, plan_.dim, to + i * plan_.rows);
    }
    MapByUser(p_, side, {b_, head, first}, to, count, plan_.rows);
  }

  // Exponents() of a chunk, as a matrix product.
  void LoadRandom(Side side, const TensorView<const float>& from, int64_t head, int64_t first,
                  size_t count, float* to) {
    const size_t cols = PanelCols();
    HWY_ALIGN float tile[kTileRows * PanelCols()];
    for (size_t i = 0; i < count; i += kTileRows) {
      const float* rows[kTileRows];
      float halves[kTileRows];
      for (size_t r = 0; r < kTileRows; ++r) {
        rows[r] = &from(b_, head, first + static_cast<int64_t>(std::min(i + r, count - 1)), 0);
        halves[r] = HalfSquare(p_, side, rows[r]);
      }
      TransposeRows(rows, kTileRows, plan_.HeadDim(), s_.packed.get(), kTileRows);
      for (size_t e = 0; e < plan_.dim; e += cols) {
        RegisterTile<ALayout<kTileRows, 1>, kTileRows>(MultiplyAccumulate(), s_.packed.get(),
                                                       plan_.projection.get() + e * plan_.HeadDim(),
                                                       plan_.HeadDim(), tile, cols, StoreOnly());
        for (size_t r = 0; r < std::min(kTileRows, count - i); ++r) {
          float* row = to + (i + r) * plan_.rows + e;
          for (size_t x = 0; x < std::min(cols, plan_.dim - e); ++x) {
            row[x] = p_.Factor(side) * tile[r * cols + x] - halves[r];
          }
        }
      }
    }
    for (size_t i = 0; i < count && side == Side::kQuery; ++i) {
      RelativeToPeaks(s_.peaks.get(), plan_.dim, to + i * plan_.rows);
    }
  }

  // Exponents of keys become features relative to the largest so far, and the state follows.
  // Does nothing and returns false where tokens differ so much that an early one would vanish
  // beside a later one, which it must not see.
  bool RaisePeaks(size_t first, size_t count) {
    const DF d;
    const size_t width = plan_.rows, lanes = hn::Lanes(d);
    float* keys = s_.keys.get() + first * width;
    float* peaks = s_.peaks.get();
    float* raised = peaks + width;
    if (count == 1 && !AllFinite(keys, width)) {
      std::fill_n(keys, plan_.dim, std::numeric_limits<float>::quiet_NaN());
      return true;
    }
    VF most = hn::Zero(d);
    for (size_t c = 0; c < width; c += lanes) {
      const VF own = hn::Max(hn::Load(d, peaks + c), hn::Load(d, keys + c));
      VF largest = own;
      for (size_t i = 1; i < count; ++i) {
        largest = hn::Max(largest, hn::Load(d, keys + i * width + c));
      }
      most = hn::Max(most, hn::Sub(largest, own));
      hn::Store(largest, d, raised + c);
    }
    if (hn::ReduceMax(d, most) > kMaxRise) return false;
    for (size_t c = 0; c < plan_.dim; ++c) {
      if (raised[c] != peaks[c]) ScaleStateRow(c, std::exp(peaks[c] - raised[c]));
      peaks[c] = raised[c];
    }
    for (size_t i = 0; i < count; ++i) {
      float* row = keys + i * width;
      for (size_t c = 0; c < plan_.dim; c += lanes) {
        const VF power = ExpNonPositive(d, hn::Sub(hn::Load(d, row + c), hn::Load(d, peaks + c)));
        hn::StoreN(power, d, row + c, std::min(lanes, plan_.dim - c));
      }
    }
    return true;
  }

  // A token that holds NaN or an infinity must not reach those before it, as 0 x NaN would.
  bool IsFinite(size_t rows) const {
    bool finite = AllFinite(s_.keys.get(), rows * plan_.rows);
    finite = finite && AllFinite(s_.writes.get(), kChunkRows * plan_.cols);
    if (p_.parts() > 1) finite = finite && AllFinite(s_.erasers.get(), rows * plan_.rows);
    if (o_.log_decay.has_value()) finite = finite && AllFinite(s_.decays.get(), DecayFloats(rows));
    for (size_t i = 0; i < rows; ++i) finite = finite && std::isfinite(s_.betas.get()[i]);
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

  const RecurrentPlan& plan_;
  const RecurrentProblem& p_;
  const RecurrentOptions& o_;
  int64_t b_, h_;
  RecurrentScratch& s_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_RECURRENT_HEAD_STATE_INL_H_
