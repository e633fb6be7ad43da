// tanh, the inner function of additive attention.
#if defined(HEED_SIMD_TANH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_SIMD_TANH_INL_H_
#undef HEED_SIMD_TANH_INL_H_
#else
#define HEED_SIMD_TANH_INL_H_
#endif

#include "hwy/highway.h"
#include "src/simd/fma-inl.h"
#include "src/simd/in_memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Replaces several vectors x by tanh(x). Infinities give exactly +-1, zeros keep their sign, NaN
// gives NaN. Max error 3.5 ULP for all floats, tiny ones included; Highway's has 4
// (tests/cpp/simd/tanh_test.cc).
//
// tanh |x| = -m / (2 + m) with m = e^(-2|x|) - 1, which loses nothing near 0 if m is computed
// without the 1: -2|x| log2(e) = n + f, f in [-1/2, 1/2], m = 2^n (2^f - 1) + (2^n - 1). 2^f - 1 is
// f times the minimax polynomial of degree 5 for (2^f - 1) / f (relative error 2.1e-8).
struct TanhConstants {
  float to_log2 = -0x1.715476p+1f;
  float least = -32.0f;  // e^-22 is nothing beside 1
  float magic = 12582912.0f;
  float one = 1.0f;
  float minus_two = -2.0f;
  float c[6] = {0x1.62e430p-1f, 0x1.ebfbdep-3f,  0x1.c6af6ep-5f,
                0x1.3b2ba0p-7f, 0x1.5f07b4p-10f, 0x1.4308fap-13f};
};
inline constexpr TanhConstants kTanh;

template <size_t kCount, class D, class V = hn::Vec<D>>
HWY_INLINE void Tanh(D d, V (&x)[kCount]) {
  const hn::RebindToSigned<D> di;
  const TanhConstants& k = InMemory(kTanh);
  const auto constant = [&](const float& value) HWY_ATTR { return hn::Set(d, value); };
  const V one = constant(k.one);
  const V magic = constant(k.magic);
  V f[kCount], power[kCount], p[kCount];
  for (size_t i = 0; i < kCount; ++i) {
    const V scaled = hn::Mul(hn::Abs(x[i]), constant(k.to_log2));
    f[i] = RaiseToBound(scaled, constant(k.least));
  }
  for (size_t i = 0; i < kCount; ++i) power[i] = hn::Add(f[i], magic);
  for (size_t i = 0; i < kCount; ++i) f[i] = hn::Sub(f[i], hn::Sub(power[i], magic));
  for (size_t i = 0; i < kCount; ++i) {
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, power[i]));
    power[i] = hn::BitCast(d, hn::Add(exponent, hn::BitCast(di, one)));
  }
  for (size_t i = 0; i < kCount; ++i) {
    const V f2 = hn::Mul(f[i], f[i]);
    const V low = Fma(f[i], constant(k.c[1]), constant(k.c[0]));
    const V middle = Fma(f[i], constant(k.c[3]), constant(k.c[2]));
    const V high = Fma(f[i], constant(k.c[5]), constant(k.c[4]));
    p[i] = Fma(f2, Fma(f2, high, middle), low);
  }
  for (size_t i = 0; i < kCount; ++i) {
    const V m = Fma(hn::Mul(power[i], f[i]), p[i], hn::Sub(power[i], one));
    const V tanh = hn::Div(m, hn::Sub(constant(k.minus_two), m));
    x[i] = hn::CopySign(tanh, x[i]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_SIMD_TANH_INL_H_
