// Products of bfloat16 numbers, two at a time, where the processor has them: a pair lies in the
// place of a float, and sums are floats.
#if defined(HEED_SIMD_BFLOAT16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_SIMD_BFLOAT16_INL_H_
#undef HEED_SIMD_BFLOAT16_INL_H_
#else
#define HEED_SIMD_BFLOAT16_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "src/parallel/worker_scratch.h"
#include "src/simd/register_tile-inl.h"

#if HWY_NATIVE_DOT_BF16
HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DPair = hn::Repartition<hwy::bfloat16_t, DF>;

// acc + a.first * b.first + a.second * b.second.
struct MultiplyPairs {
  HWY_INLINE MultiplyPairs At(size_t) const { return {}; }
  HWY_INLINE VF Step(VF a, VF b, VF acc) const {
    const DPair d;
    VF unused = acc;
    return hn::ReorderWidenMulAccumulate(DF(), hn::BitCast(d, a), hn::BitCast(d, b), acc, unused);
  }
};

// Neighbours of one row, rounded to nearest: [2t, 2t + 1] in the place of t.
HWY_INLINE VF ToPairs(VF low, VF high) {
  return hn::BitCast(DF(), hn::OrderedDemote2To(DPair(), low, high));
}

// A row of `width` floats as (width + 1) / 2 pairs; what is missing is 0. Writes whole vectors.
inline void RowToPairs(const float* HWY_RESTRICT row, size_t width, float* HWY_RESTRICT to) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  for (size_t c = 0; c < width; c += 2 * lanes) {
    const size_t left = width - c;
    const VF low = hn::LoadN(d, row + c, left);
    const VF high = left > lanes ? hn::LoadN(d, row + c + lanes, left - lanes) : hn::Zero(d);
    hn::StoreU(ToPairs(low, high), d, to + c / 2);
  }
}

// Two rows as one of pairs: [first[t], second[t]] in the place of t. Exact: both hold bfloat16.
HWY_INLINE VF Zip(VF first, VF second) {
  const hn::RebindToUnsigned<DF> du;
  const auto low = hn::ShiftRight<16>(hn::BitCast(du, first));
  return hn::BitCast(DF(), hn::OrAnd(low, hn::BitCast(du, second), hn::Set(du, 0xFFFF0000u)));
}

// Rows [0, count) of values, an even number of them or the last, as panels of pairs:
// [panel][pair][PanelCols()], `panel_rows` pairs apart; rows [count, filled) become zeros. Returns
// whether every value is finite.
inline bool PackPairPanels(const float* const* rows, size_t count, size_t filled, size_t width,
                           size_t panel_rows, float* HWY_RESTRICT to) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  VF poison = hn::Zero(d);
  for (size_t r = 0; r < count; r += 2) {
    for (size_t c = 0; c < RoundUp(width, PanelCols()); c += lanes) {
      const size_t left = c < width ? width - c : 0;
      const VF first = hn::LoadN(d, rows[r] + std::min(c, width), left);
      const VF second =
          r + 1 < count ? hn::LoadN(d, rows[r + 1] + std::min(c, width), left) : hn::Zero(d);
      float* panel = to + c / PanelCols() * panel_rows * PanelCols() + c % PanelCols();
      hn::StoreU(Zip(first, second), d, panel + r / 2 * PanelCols());
      poison = hn::Add(poison, hn::Add(hn::Mul(first, hn::Zero(d)), hn::Mul(second, hn::Zero(d))));
    }
  }
  for (size_t pair = (count + 1) / 2; pair < (filled + 1) / 2; ++pair) {
    for (size_t c = 0; c < width; c += PanelCols()) {
      std::fill_n(to + (c / PanelCols() * panel_rows + pair) * PanelCols(), PanelCols(), 0.0f);
    }
  }
  return hn::ReduceSum(d, poison) == 0.0f;
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();
#endif  // HWY_NATIVE_DOT_BF16

#endif  // HEED_SIMD_BFLOAT16_INL_H_
