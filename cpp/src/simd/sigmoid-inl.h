// The logistic function.
#if defined(HEED_SIMD_SIGMOID_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_SIMD_SIGMOID_INL_H_
#undef HEED_SIMD_SIGMOID_INL_H_
#else
#define HEED_SIMD_SIGMOID_INL_H_
#endif

#include "hwy/highway.h"
#include "src/simd/exp2-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// e^-|x|, never larger than 1: what 1 / (1 + e^-x) and 1 / (1 + e^x) are both made of.
HWY_INLINE VF ExpNegAbs(DF d, VF x) {
  VF e[1] = {hn::Mul(hn::Abs(x), hn::Set(d, -kLog2E))};
  Exp2NonPositive(d, e);
  return e[0];
}

// 1 / (1 + e^-x), from e^-|x| so that nothing overflows and small values keep their relative
// precision. -inf gives exactly 0, NaN gives NaN.
HWY_INLINE VF Sigmoid(DF d, VF x) {
  const VF e = ExpNegAbs(d, x);
  const VF one = hn::Set(d, 1.0f);
  const VF numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Div(numerator, hn::Add(one, e));
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_SIMD_SIGMOID_INL_H_
