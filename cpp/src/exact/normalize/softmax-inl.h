// Normalize plug: softmax, streamed with a running maximum (Milakov & Gimelshein 2018,
// arXiv:1805.02867), with optional sinks: one logit per head inside the denominator (Xiao 2023,
// arXiv:2309.17453; a sink of 0 is softmax-off-by-one).
#if defined(HEED_EXACT_NORMALIZE_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_NORMALIZE_SOFTMAX_INL_H_
#undef HEED_EXACT_NORMALIZE_SOFTMAX_INL_H_
#else
#define HEED_EXACT_NORMALIZE_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "hwy/highway.h"
#include "src/exact/normalize/normalize-inl.h"
#include "src/exact/normalize_gradient-inl.h"
#include "src/simd/exp2-inl.h"
#include "src/simd/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class Units>
class Softmax final : public NormalizePlug {
 public:
  // `sink` is that of every head when there are no `sinks`: -inf for none.
  Softmax(std::span<const float> sinks, float sink) : sinks_(sinks), sink_(sink) {}

  float StartMax() const override { return -std::numeric_limits<float>::infinity(); }

  // Scores that are not kept are -inf: they raise no maximum, and their weight is exactly 0.
  //
  // All maxima come before the first exponential: a row by itself would wait for its horizontal
  // maximum, then for its horizontal sum (15 cycles a vector instead of 6; Zen 3, AVX2).
  void Accumulate(const ScoreTile& tile, RowStates states, float* rescale) const override {
    const size_t count = tile.last - tile.first;
    HWY_ALIGN float shift[kScoreRows];
    HWY_ALIGN float sum[kScoreRows] = {};
    const DF d;
    ReduceRows(tile, MaxOf(), sum, [&](float* row, size_t) HWY_ATTR { return Max(row, count); });
    RaiseMax(sum, tile.num_rows, states, shift, rescale);
    ReduceRows(tile, SumOf(), sum,
               [&](float* row, size_t r) HWY_ATTR { return ExpInPlace(row, count, shift[r]); });
    for (size_t r = 0; r < tile.num_rows; r += hn::Lanes(d)) {
      const VF old = hn::Mul(hn::Load(d, states.row_sum + r), hn::Load(d, rescale + r));
      hn::Store(hn::Add(old, hn::Load(d, sum + r)), d, states.row_sum + r);
    }
  }

  bool CanSplit() const override { return true; }

  void Merge(RowStates into, RowStates from, size_t rows, float* scale_into,
             float* scale_from) const override {
    const DF d;
    for (size_t r = 0; r < rows; r += hn::Lanes(d)) {
      const VF max_into = hn::Load(d, into.row_max + r);
      const VF max_from = hn::Load(d, from.row_max + r);
      const VF row_max = hn::IfThenElse(hn::Gt(max_from, max_into), max_from, max_into);
      VF scale[2] = {Fall(max_into, row_max), Fall(max_from, row_max)};
      Exp2NonPositive(d, scale);
      const VF old_sum = hn::Mul(hn::Load(d, into.row_sum + r), scale[0]);
      hn::Store(hn::MulAdd(hn::Load(d, from.row_sum + r), scale[1], old_sum), d, into.row_sum + r);
      hn::Store(row_max, d, into.row_max + r);
      hn::Store(scale[0], d, scale_into + r);
      hn::Store(scale[1], d, scale_from + r);
    }
  }

  RowEnd Finish(const Row& row, RowStates states, size_t r) const override {
    const float row_sum = states.row_sum[r];
    if (row_sum == 0.0f) return {0.0f, true};
    const float sink = Sink(row);
    if (std::isinf(sink)) return {1.0f / row_sum, false};
    // Both the weights and the sink are taken relative to the larger of the two maxima.
    const float row_max = NaturalMax(states, r);
    const float top = std::max(row_max, sink);
    const float down = std::exp(row_max - top);
    return {down / (row_sum * down + std::exp(sink - top)), false};
  }

  float Lse(const Row& row, RowStates states, size_t r) const override {
    const float row_sum = states.row_sum[r];
    if (row_sum == 0.0f) return -std::numeric_limits<float>::infinity();
    const float sink = Sink(row);
    const float row_max = NaturalMax(states, r);
    if (std::isinf(sink)) return row_max + std::log(row_sum);
    const float top = std::max(row_max, sink);
    return top + std::log(row_sum * std::exp(row_max - top) + std::exp(sink - top));
  }

  float MaxOfLse(float lse) const override { return lse * Units::kPerNat; }

  void Weights(const ScoreTile& tile, RowStates states, size_t r,
               const RowEnd& end) const override {
    float* row = tile.row_scores(r) + tile.first;
    const size_t count = tile.last - tile.first;
    if (end.empty) {
      std::fill(row, row + count, 0.0f);
      return;
    }
    ExpInPlace(row, count, states.row_max[r]);
    const DF d;
    const VF factor = hn::Set(d, end.factor);
    for (size_t c = 0; c < count; c += hn::Lanes(d)) {
      hn::Store(hn::Mul(hn::Load(d, row + c), factor), d, row + c);
    }
  }

 private:
  // By how many powers of two `part` lies below `row_max`; a row that saw nothing falls to zero.
  static VF Fall(VF part, VF row_max) {
    const DF d;
    const VF minus_inf = hn::Set(d, -std::numeric_limits<float>::infinity());
    const VF fall = Units::ToLog2(d, hn::Sub(part, row_max));
    return hn::IfThenElse(hn::Eq(part, minus_inf), minus_inf, fall);
  }

  // The row's sink, -inf when there is none.
  float Sink(const Row& row) const {
    return sinks_.empty() ? sink_ : sinks_[static_cast<size_t>(row.head)];
  }

  static float NaturalMax(RowStates states, size_t r) {
    return states.row_max[r] * (1.0f / Units::kPerNat);
  }

  // Takes the tile's maxima into the states. `shift` is what to subtract from the scores: the new
  // maximum, or 0 while a row has seen nothing. Rows whose maximum stayed get exactly 1.
  static void RaiseMax(const float* HWY_RESTRICT tile_max, size_t rows, RowStates states,
                       float* HWY_RESTRICT shift, float* HWY_RESTRICT rescale) {
    const DF d;
    const VF minus_inf = hn::Set(d, -std::numeric_limits<float>::infinity());
    for (size_t r = 0; r < rows; r += hn::Lanes(d)) {
      const VF old_max = hn::Load(d, states.row_max + r);
      const VF new_max = hn::Load(d, tile_max + r);
      const auto grew = hn::Gt(new_max, old_max);  // false for NaN: the row is lost anyway
      const VF row_max = hn::IfThenElse(grew, new_max, old_max);
      const VF from = hn::IfThenElseZero(hn::Ne(row_max, minus_inf), row_max);
      VF fall[1] = {Units::ToLog2(d, hn::Sub(old_max, from))};
      Exp2NonPositive(d, fall);
      hn::Store(from, d, shift + r);
      hn::Store(hn::IfThenElse(grew, fall[0], hn::Set(d, kNoRescale)), d, rescale + r);
      hn::Store(row_max, d, states.row_max + r);
    }
  }

  // Reduces what `body(row, r)` makes of the rows' visible columns: `to[r]` is that of row r.
  template <class Op, class Body>
  static HWY_INLINE void ReduceRows(const ScoreTile& tile, Op op, float* HWY_RESTRICT to,
                                    const Body& body) {
    const DF d;
    for (size_t r = 0; r < tile.num_rows; r += 4) {
      VF four[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      for (size_t i = 0; i < std::min<size_t>(4, tile.num_rows - r); ++i) {
        four[i] = body(tile.row_scores(r + i) + tile.first, r + i);
      }
      hn::Store(ReduceFour(d, four, op), D4(), to + r);
    }
  }

  // count is a multiple of PanelCols(), two vectors.
  static VF Max(const float* HWY_RESTRICT row, size_t count) {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    VF max0 = hn::Set(d, -std::numeric_limits<float>::infinity());
    VF max1 = max0;
    for (size_t c = 0; c < count; c += 2 * lanes) {
      max0 = hn::Max(hn::Load(d, row + c), max0);
      max1 = hn::Max(hn::Load(d, row + c + lanes), max1);
    }
    return hn::Max(max0, max1);
  }

  // Vectors [c, c + kCount) of a row: row = e^(row - shift), added to the sums.
  template <size_t kCount>
  static HWY_INLINE void ExpVectors(float* HWY_RESTRICT row, VF shift, VF (&sum)[2]) {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    VF x[kCount];
    for (size_t i = 0; i < kCount; ++i) {
      x[i] = Units::ToLog2(d, hn::Sub(hn::Load(d, row + i * lanes), shift));
    }
    Exp2NonPositive(d, x);
    for (size_t i = 0; i < kCount; ++i) {
      hn::Store(x[i], d, row + i * lanes);
      sum[i % 2] = hn::Add(sum[i % 2], x[i]);
    }
  }

  // row = e^(row - shift); returns the sum of its vectors. The difference is taken first: exact
  // near the maximum, and safe for logits up to the largest float.
  static VF ExpInPlace(float* HWY_RESTRICT row, size_t count, float shift) {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    const VF max = hn::Set(d, shift);
    VF sum[2] = {hn::Zero(d), hn::Zero(d)};
    size_t c = 0;
    for (; c + 4 * lanes <= count; c += 4 * lanes) ExpVectors<4>(row + c, max, sum);
    if (c < count) ExpVectors<2>(row + c, max, sum);
    return hn::Add(sum[0], sum[1]);
  }

  std::span<const float> sinks_;
  float sink_;
};

// p = e^(s - lse), d_s = p (d_p - mean). The sink needs nothing of its own: it is in lse.
template <class Units>
class SoftmaxGradient final : public NormalizeGradient {
 public:
  void Apply(const ScoreTile& tile, float* d_weights, const GradientRows& rows) const override {
    const size_t wide = 4 * hn::Lanes(DF());
    ScoreTile part = tile;
    part.last = tile.first + (tile.last - tile.first) / wide * wide;
    ApplyVectors<4>(part, d_weights, rows);
    part.first = part.last;
    part.last = tile.last;
    ApplyVectors<2>(part, d_weights, rows);
  }

 private:
  template <size_t kCount>
  static void ApplyVectors(const ScoreTile& tile, float* d_weights, const GradientRows& rows) {
    const DF d;
    ReplaceScores<kCount>(tile, d_weights, [&](VF(&s)[kCount], VF(&g)[kCount], size_t r) HWY_ATTR {
      const VF shift = hn::Set(d, rows.lse[r] * Units::kPerNat);
      const VF mean = hn::Set(d, rows.mean[r]);
      for (size_t i = 0; i < kCount; ++i) s[i] = Units::ToLog2(d, hn::Sub(s[i], shift));
      Exp2NonPositive(d, s);
      for (size_t i = 0; i < kCount; ++i) g[i] = hn::Mul(s[i], hn::Sub(g[i], mean));
    });
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_SOFTMAX_INL_H_
