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
#include "src/simd/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class Softmax final : public NormalizePlug {
 public:
  explicit Softmax(std::span<const float> sinks) : sinks_(sinks) {}

  RowState Start() const override { return {-std::numeric_limits<float>::infinity(), 0.0f}; }

  // Scores that are not kept are -inf: they lower no maximum, and their weight is exactly 0. The
  // output is rescaled only when the maximum grew, which soon becomes rare.
  float Accumulate(const ScoreTile& tile, size_t r, RowState& state) const override {
    float* row = tile.row_scores(r) + tile.first;
    const size_t count = tile.last - tile.first;
    const float old_max = state.row_max;
    const float new_max = std::max(old_max, Max(row, count));
    const float shift = std::isinf(new_max) && new_max < 0 ? 0.0f : new_max;
    const float sum = ExpInPlace(row, count, shift);
    if (!(new_max > old_max)) {
      state.row_sum += sum;
      return 1.0f;
    }
    const float rescale = Exp(old_max - shift);
    state.row_sum = state.row_sum * rescale + sum;
    state.row_max = new_max;
    return rescale;
  }

  RowEnd Finish(const Row& row, const RowState& state) const override {
    const float minus_inf = -std::numeric_limits<float>::infinity();
    if (state.row_sum == 0.0f) return {0.0f, minus_inf, true};
    const float sink = sinks_.empty() ? minus_inf : sinks_[static_cast<size_t>(row.head)];
    if (sink == minus_inf) {
      return {1.0f / state.row_sum, state.row_max + std::log(state.row_sum), false};
    }
    // Both the weights and the sink are taken relative to the larger of the two maxima.
    const float top = std::max(state.row_max, sink);
    const float down = std::exp(state.row_max - top);
    const float sum = state.row_sum * down + std::exp(sink - top);
    return {down / sum, top + std::log(sum), false};
  }

  void Weights(const ScoreTile& tile, size_t r, const RowState& state,
               const RowEnd& end) const override {
    float* row = tile.row_scores(r) + tile.first;
    const size_t count = tile.last - tile.first;
    if (end.empty) {
      std::fill(row, row + count, 0.0f);
      return;
    }
    ExpInPlace(row, count, state.row_max);
    const DF d;
    const VF factor = hn::Set(d, end.factor);
    for (size_t c = 0; c < count; c += hn::Lanes(d)) {
      hn::Store(hn::Mul(hn::Load(d, row + c), factor), d, row + c);
    }
  }

 private:
  // e^x for one x <= 0, by the same polynomial as the rows.
  static float Exp(float x) {
    const DF d;
    return hn::GetLane(Exp2NonPositive(d, hn::Set(d, x * kLog2E)));
  }

  // count is a multiple of PanelCols(), two vectors.
  static float Max(const float* HWY_RESTRICT row, size_t count) {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    VF max0 = hn::Set(d, -std::numeric_limits<float>::infinity());
    VF max1 = max0;
    for (size_t c = 0; c < count; c += 2 * lanes) {
      max0 = hn::Max(hn::Load(d, row + c), max0);
      max1 = hn::Max(hn::Load(d, row + c + lanes), max1);
    }
    return hn::ReduceMax(d, hn::Max(max0, max1));
  }

  // row = e^(row - shift); returns the sum. The difference is taken before the factor log2(e):
  // exact near the maximum, and safe for logits up to the largest float.
  static float ExpInPlace(float* HWY_RESTRICT row, size_t count, float shift) {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    const VF max = hn::Set(d, shift);
    const VF log2e = hn::Set(d, kLog2E);
    VF sum0 = hn::Zero(d);
    VF sum1 = hn::Zero(d);
    for (size_t c = 0; c < count; c += 2 * lanes) {
      const VF p0 = Exp2NonPositive(d, hn::Mul(hn::Sub(hn::Load(d, row + c), max), log2e));
      const VF p1 = Exp2NonPositive(d, hn::Mul(hn::Sub(hn::Load(d, row + c + lanes), max), log2e));
      hn::Store(p0, d, row + c);
      hn::Store(p1, d, row + c + lanes);
      sum0 = hn::Add(sum0, p0);
      sum1 = hn::Add(sum1, p1);
    }
    return hn::ReduceSum(d, hn::Add(sum0, sum1));
  }

  std::span<const float> sinks_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_SOFTMAX_INL_H_
