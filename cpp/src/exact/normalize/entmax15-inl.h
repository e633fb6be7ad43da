// Normalize plug: entmax with alpha = 1.5, max(0, s / 2 - tau)^2. Source: Peters, Niculae & Martins
// 2019, arXiv:1905.05702; the threshold by Newton's method instead of sorting.
#if defined(HEED_EXACT_NORMALIZE_ENTMAX15_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_NORMALIZE_ENTMAX15_INL_H_
#undef HEED_EXACT_NORMALIZE_ENTMAX15_INL_H_
#else
#define HEED_EXACT_NORMALIZE_ENTMAX15_INL_H_
#endif

#include <cmath>

#include "src/exact/normalize/rows-inl.h"
#include "src/exact/normalize/threshold-inl.h"
#include "src/exact/row_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class Entmax15 final : public SingleRowNormalize {
 protected:
  float NormalizeRow(const ScoreRows& rows, size_t r) const override {
    const DF d;
    const float row_max = RowMax(rows, r);
    if (row_max == kMinusInfinity) return kMinusInfinity;
    if (!std::isfinite(row_max)) return LoseRow(rows, r);
    const VF top = hn::Set(d, row_max);
    const Threshold threshold = Find(rows, r, top);
    ReplaceVisible(rows, r, [&](VF s) HWY_ATTR {
      const VF root = Root(d, threshold, s, top);
      return hn::Mul(root, root);
    });
    return 0.0f;
  }

 private:
  // The square root of a weight.
  static HWY_INLINE VF Root(DF d, const Threshold& threshold, VF s, VF top) {
    return threshold.Above(d, hn::Mul(hn::Sub(s, top), hn::Set(d, 0.5f)));
  }

  // From tau = -1, where the largest score alone has the weight 1. The steps are Newton's for the
  // norm of the roots, which is nearly linear: a row with one key is done at once.
  static Threshold Find(const ScoreRows& rows, size_t r, VF top) {
    const DF d;
    constexpr int kMostSteps = 40;
    constexpr double kSmallStep = 0x1p-26;
    double tau = -1;
    for (int n = 0; n < kMostSteps; ++n) {
      const Threshold threshold(tau);
      const double sum =
          SumOver(rows, r, [&](VF s) HWY_ATTR { return Root(d, threshold, s, top); });
      const double squares = SumOver(rows, r, [&](VF s) HWY_ATTR {
        const VF root = Root(d, threshold, s, top);
        return hn::Mul(root, root);
      });
      const double step = (squares - std::sqrt(squares)) / sum;
      tau += step;
      if (!(step > kSmallStep)) break;
    }
    return Threshold(tau);
  }
};

// With u = sqrt(p): d_s = u (d_p - sum u d_p / sum u).
class Entmax15Gradient final : public WeightRowGradient {
 protected:
  void ApplyToRow(const RowPair& rows, size_t r, const GradientRows&) const override {
    const DF d;
    const auto root = [&](VF w)
                          HWY_ATTR { return hn::IfThenElseZero(InSupport(d, w), hn::Sqrt(w)); };
    const double roots = SumOverPairs(rows, r, [&](VF w, VF) HWY_ATTR { return root(w); });
    if (roots == 0) return ReplaceGradients(rows, r, [&](VF, VF) HWY_ATTR { return hn::Zero(d); });
    const double sum = SumOverPairs(rows, r, [&](VF w, VF g) HWY_ATTR {
      return hn::IfThenElseZero(InSupport(d, w), hn::Mul(root(w), g));
    });
    const VF mean = hn::Set(d, static_cast<float>(sum / roots));
    ReplaceGradients(rows, r, [&](VF w, VF g) HWY_ATTR {
      return hn::IfThenElseZero(InSupport(d, w), hn::Mul(root(w), hn::Sub(g, mean)));
    });
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_ENTMAX15_INL_H_
