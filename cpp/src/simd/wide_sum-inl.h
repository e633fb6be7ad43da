// Sums of vectors of float32 that are kept in float64.
#if defined(HEED_SIMD_WIDE_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_SIMD_WIDE_SUM_INL_H_
#undef HEED_SIMD_WIDE_SUM_INL_H_
#else
#define HEED_SIMD_WIDE_SUM_INL_H_
#endif

#include "hwy/highway.h"
#include "src/rows/norm-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sums in float64 of as many lanes as a vector of float32 has: two vectors.
struct WideSum {
  VD low, high;

  HWY_INLINE WideSum() : low(hn::Zero(DD())), high(hn::Zero(DD())) {}
  HWY_INLINE WideSum(VD l, VD h) : low(l), high(h) {}
  HWY_INLINE void Scale(VF factor) {
    low = hn::Mul(low, Low(factor));
    high = hn::Mul(high, High(factor));
  }
  HWY_INLINE void Add(VF x) {
    low = hn::Add(low, Low(x));
    high = hn::Add(high, High(x));
  }
  HWY_INLINE void AddProduct(VF x, VF y) {
    low = hn::MulAdd(Low(x), Low(y), low);
    high = hn::MulAdd(High(x), High(y), high);
  }
  HWY_INLINE VF Rounded() const {
    const DHalf dh;
    return hn::Combine(DF(), hn::DemoteTo(dh, high), hn::DemoteTo(dh, low));
  }
  static HWY_INLINE VD Low(VF x) { return hn::PromoteTo(DD(), hn::LowerHalf(DHalf(), x)); }
  static HWY_INLINE VD High(VF x) { return hn::PromoteTo(DD(), hn::UpperHalf(DHalf(), x)); }
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_SIMD_WIDE_SUM_INL_H_
