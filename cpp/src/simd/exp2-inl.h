// 2^x for x <= 0, the inner function of softmax.
#if defined(HEED_SIMD_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_SIMD_EXP2_INL_H_
#undef HEED_SIMD_EXP2_INL_H_
#else
#define HEED_SIMD_EXP2_INL_H_
#endif

#include "hwy/highway.h"
#include "src/simd/fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Replaces several vectors x by 2^x, for x in [-inf, 0] (and a little beyond). 2^0 is exactly 1,
// x < -126.5 gives exactly 0, NaN gives NaN. Max error 1.6 ULP, 1.4 where Fma fuses
// (tests/cpp/simd/exp2_test.cc).
//
// x splits into a whole part n, rounded by adding 1.5 * 2^23, and f in [-1/2, 1/2]; 2^f is the
// minimax polynomial of degree 6 (relative error 2.6e-9 before rounding); 2^n is built from bits.
// The last step multiplies instead of adding to the exponent, which costs one instruction and keeps
// NaN a NaN.
//
// A single chain of these steps takes about 35 cycles, and the scheduler of Zen 3 holds fewer than
// four chains: hence Estrin's scheme, and several vectors side by side, step by step.
template <size_t kCount, class D, class V = hn::Vec<D>>
HWY_INLINE void Exp2NonPositive(D d, V (&x)[kCount]) {
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, 12582912.0f);
  V power[kCount];
  V p[kCount];
  for (size_t i = 0; i < kCount; ++i) x[i] = RaiseToBound(x[i], hn::Set(d, -127.0f));
  for (size_t i = 0; i < kCount; ++i) power[i] = hn::Add(x[i], magic);
  for (size_t i = 0; i < kCount; ++i) x[i] = hn::Sub(x[i], hn::Sub(power[i], magic));
  for (size_t i = 0; i < kCount; ++i) {
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, power[i]));
    power[i] = hn::BitCast(d, hn::Add(exponent, hn::Set(di, 127 << 23)));
  }
  for (size_t i = 0; i < kCount; ++i) {
    const V f = x[i];
    const V f2 = hn::Mul(f, f);
    const V low = Fma(f, hn::Set(d, 0x1.62e432p-1f), hn::Set(d, 1.0f));
    const V middle = Fma(f, hn::Set(d, 0x1.c6ae72p-5f), hn::Set(d, 0x1.ebfbe2p-3f));
    const V high = Fma(f, hn::Set(d, 0x1.5f7276p-10f), hn::Set(d, 0x1.3b270ep-7f));
    p[i] = Fma(f2, hn::Set(d, 0x1.470b4ap-13f), high);
    p[i] = Fma(f2, p[i], middle);
    p[i] = Fma(f2, p[i], low);
  }
  for (size_t i = 0; i < kCount; ++i) x[i] = hn::Mul(p[i], power[i]);
}

inline constexpr float kLog2E = 1.44269504088896340736f;

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_SIMD_EXP2_INL_H_
