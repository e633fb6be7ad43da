// Normalize plug: kernel sum. w = K(u) / sum K(u), where the tile holds s = -u^2 / 2. Kernels have
// no maximum to subtract, so rows need no rescaling. Source: Nadaraya 1964, Watson 1964; kernels as
// in Hastie, Tibshirani & Friedman, The Elements of Statistical Learning, section 6.1.
//
// The gaussian kernel is Softmax on s: the same quotient, and it cannot underflow.
#if defined(HEED_EXACT_NORMALIZE_KERNEL_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_NORMALIZE_KERNEL_SUM_INL_H_
#undef HEED_EXACT_NORMALIZE_KERNEL_SUM_INL_H_
#else
#define HEED_EXACT_NORMALIZE_KERNEL_SUM_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "hwy/highway.h"
#include "src/exact/normalize/normalize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Each kernel maps u^2 >= 0 to a weight. A hidden key arrives as u^2 = +inf.
struct BoxcarKernel {
  static HWY_INLINE VF Weight(DF d, VF u2) {
    const VF one = hn::Set(d, 1.0f);
    return hn::IfThenElseZero(hn::Le(u2, one), one);
  }
};
struct TriangularKernel {
  static HWY_INLINE VF Weight(DF d, VF u2) {
    return RaiseToBound(hn::Sub(hn::Set(d, 1.0f), hn::Sqrt(u2)), hn::Zero(d));
  }
};
struct EpanechnikovKernel {
  static HWY_INLINE VF Weight(DF d, VF u2) {
    return RaiseToBound(hn::Sub(hn::Set(d, 1.0f), u2), hn::Zero(d));
  }
};
struct ConstantKernel {
  static HWY_INLINE VF Weight(DF d, VF u2) {
    const VF inf = hn::Set(d, std::numeric_limits<float>::infinity());
    return hn::IfThenElseZero(hn::Lt(u2, inf), hn::Set(d, 1.0f));
  }
};

template <class KernelFunction>
class KernelSum final : public NormalizePlug {
 public:
  float StartMax() const override { return 0.0f; }

  void Accumulate(const ScoreTile& tile, RowStates states, float* rescale) const override {
    for (size_t r = 0; r < tile.num_rows; ++r) {
      states.row_sum[r] += WeighInPlace(tile.row_scores(r) + tile.first, tile.last - tile.first);
      rescale[r] = kNoRescale;
    }
  }

  RowEnd Finish(const Row&, RowStates states, size_t r) const override {
    if (states.row_sum[r] == 0.0f) return {0.0f, true};
    return {1.0f / states.row_sum[r], false};
  }

  // Never asked for: a kernel sum has no softmax denominator, and validation says so.
  float Lse(const Row&, RowStates, size_t) const override {
    return std::numeric_limits<float>::quiet_NaN();
  }

  void Weights(const ScoreTile& tile, RowStates, size_t r, const RowEnd& end) const override {
    float* row = tile.row_scores(r) + tile.first;
    const size_t count = tile.last - tile.first;
    WeighInPlace(row, count);
    for (size_t c = 0; c < count; ++c) row[c] = end.empty ? 0.0f : row[c] * end.factor;
  }

 private:
  // NaN distances (visible non-finite input) give NaN weights with every kernel.
  static float WeighInPlace(float* HWY_RESTRICT row, size_t count) {
    const DF d;
    VF sum = hn::Zero(d);
    for (size_t c = 0; c < count; c += hn::Lanes(d)) {
      const VF u2 = hn::Mul(hn::Load(d, row + c), hn::Set(d, -2.0f));
      const VF weight = hn::IfThenElse(hn::IsNaN(u2), u2, KernelFunction::Weight(d, u2));
      hn::Store(weight, d, row + c);
      sum = hn::Add(sum, weight);
    }
    return hn::ReduceSum(d, sum);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_KERNEL_SUM_INL_H_
