// Normalize plug: sparsemax, max(0, s - tau). Source: Martins & Astudillo 2016, arXiv:1602.02068;
// the threshold by Newton's method instead of sorting: three to six passes over the row.
#if defined(HEED_EXACT_NORMALIZE_SPARSEMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_NORMALIZE_SPARSEMAX_INL_H_
#undef HEED_EXACT_NORMALIZE_SPARSEMAX_INL_H_
#else
#define HEED_EXACT_NORMALIZE_SPARSEMAX_INL_H_
#endif

#include <cmath>

#include "src/exact/normalize/rows-inl.h"
#include "src/exact/normalize/threshold-inl.h"
#include "src/exact/row_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class Sparsemax final : public SingleRowNormalize {
 protected:
  float NormalizeRow(const ScoreRows& rows, size_t r) const override {
    const DF d;
    const float row_max = RowMax(rows, r);
    if (row_max == kMinusInfinity) return kMinusInfinity;
    if (!std::isfinite(row_max)) return LoseRow(rows, r);
    const VF top = hn::Set(d, row_max);
    const Threshold threshold = Find(rows, r, top);
    ReplaceVisible(rows, r, [&](VF s) HWY_ATTR { return threshold.Above(d, hn::Sub(s, top)); });
    return 0.0f;
  }

 private:
  // From tau = -1, where the largest score alone has the weight 1. A step solves the equation for
  // the present support, which can only shrink: it is right when it stays.
  static Threshold Find(const ScoreRows& rows, size_t r, VF top) {
    const DF d;
    double tau = -1;
    double support = 0;
    while (true) {
      const Threshold threshold(tau);
      const double sum =
          SumOver(rows, r, [&](VF s) HWY_ATTR { return threshold.Above(d, hn::Sub(s, top)); });
      const double count = SumOver(rows, r, [&](VF s) HWY_ATTR {
        const VF weight = threshold.Above(d, hn::Sub(s, top));
        return hn::IfThenElseZero(hn::Gt(weight, hn::Zero(d)), hn::Set(d, 1.0f));
      });
      tau += (sum - 1) / count;
      if (count == support) return Threshold(tau);
      support = count;
    }
  }
};

// d_s = d_p - the mean of d_p over the support; 0 outside of it.
class SparsemaxGradient final : public WeightRowGradient {
 protected:
  void ApplyToRow(const RowPair& rows, size_t r, const GradientRows&) const override {
    const DF d;
    const double count = SumOverPairs(rows, r, [&](VF w, VF) HWY_ATTR {
      return hn::IfThenElseZero(InSupport(d, w), hn::Set(d, 1.0f));
    });
    if (count == 0) return ReplaceGradients(rows, r, [&](VF, VF) HWY_ATTR { return hn::Zero(d); });
    const double sum = SumOverPairs(
        rows, r, [&](VF w, VF g) HWY_ATTR { return hn::IfThenElseZero(InSupport(d, w), g); });
    const VF mean = hn::Set(d, static_cast<float>(sum / count));
    ReplaceGradients(rows, r, [&](VF w, VF g) HWY_ATTR {
      // Weights that are NaN make gradients NaN.
      const VF moved = hn::MulAdd(w, hn::Zero(d), hn::Sub(g, mean));
      return hn::IfThenElseZero(InSupport(d, w), moved);
    });
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_SPARSEMAX_INL_H_
