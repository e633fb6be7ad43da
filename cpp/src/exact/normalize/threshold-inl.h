// What sparsemax and entmax share: a threshold tau below which weights are 0, found by Newton's
// method. The sum of the weights is a convex, falling function of tau, so that steps from the left
// of the root never overshoot it.
#if defined(HEED_EXACT_NORMALIZE_THRESHOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_NORMALIZE_THRESHOLD_INL_H_
#undef HEED_EXACT_NORMALIZE_THRESHOLD_INL_H_
#else
#define HEED_EXACT_NORMALIZE_THRESHOLD_INL_H_
#endif

#include "src/exact/normalize/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// tau as two floats, relative to the row's largest score: with a single one, a row of n weights of
// 1 / n would miss the sum of 1 by n roundings of tau.
struct Threshold {
  double tau;
  VF high, low;

  explicit Threshold(double at) : tau(at) {
    const DF d;
    const float rounded = static_cast<float>(at);
    high = hn::Set(d, rounded);
    low = hn::Set(d, static_cast<float>(at - static_cast<double>(rounded)));
  }
  // max(0, x - tau).
  HWY_INLINE VF Above(DF d, VF x) const {
    return RaiseToBound(hn::Sub(hn::Sub(x, high), low), hn::Zero(d));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_THRESHOLD_INL_H_
