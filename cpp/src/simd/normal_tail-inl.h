// The tail of the normal distribution, the inner function of gelu.
#if defined(HEED_SIMD_NORMAL_TAIL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_SIMD_NORMAL_TAIL_INL_H_
#undef HEED_SIMD_NORMAL_TAIL_INL_H_
#else
#define HEED_SIMD_NORMAL_TAIL_INL_H_
#endif

#include "hwy/highway.h"
#include "src/simd/exp2-inl.h"
#include "src/simd/fma-inl.h"
#include "src/simd/in_memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// erfc(a / sqrt 2) / 2 = e^(-a^2 / 2) P(s) / (a + w) with s = (a - w) / (a + w), w = 3 sqrt 2. P is
// the minimax polynomial of degree 9 for a up to 14.4 (relative error 2.1e-9); beyond, e^(-a^2 / 2)
// is 0 anyway.
struct NormalTailConstants {
  float to_log2 = -0x1.715476p-1f;  // of e^(-a^2 / 2)
  float w = 0x1.0f876cp+2f;
  float one = 1.0f;
  float most = 16.0f;  // keeps s a number for infinities
  float c[10] = {0x1.84d500p-1f,   -0x1.3fd2aep-1f, 0x1.ab5ef6p-2f,   -0x1.c19a52p-3f,
                 0x1.5a3174p-4f,   -0x1.36f21ep-6f, -0x1.c6abf0p-11f, 0x1.1d7d9ep-9f,
                 -0x1.664114p-12f, -0x1.e270d0p-13f};
};
inline constexpr NormalTailConstants kNormalTail;

// What a normal number is below x with, and e^(-x^2 / 2).
template <class V>
struct NormalShare {
  V below;
  V bell;
};

// Max relative error of `below` 6e-7 for |x| <= 1, 1e-6 for |x| <= 4 (rows/activation_test.cc):
// that of e^(-x^2 / 2), whose exponent is rounded, grows with x^2. Nothing is lost where `below` is
// small, as it is in (1 + erf x) / 2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE NormalShare<V> ShareBelow(D d, V x) {
  const NormalTailConstants& k = InMemory(kNormalTail);
  const auto constant = [&](const float& value) HWY_ATTR { return hn::Set(d, value); };
  const V one = constant(k.one), w = constant(k.w);
  V bell[1] = {hn::Mul(hn::Mul(x, x), constant(k.to_log2))};
  Exp2NonPositive(d, bell);
  const V a = hn::Min(hn::Abs(x), constant(k.most));
  const V inverse = hn::Div(one, hn::Add(a, w));
  const V s = hn::Mul(hn::Sub(a, w), inverse);
  V p = constant(k.c[9]);
  HWY_UNROLL(9)
  for (size_t n = 1; n <= 9; ++n) p = Fma(p, s, constant(k.c[9 - n]));
  const V tail = hn::Mul(hn::Mul(bell[0], inverse), p);
  return {hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail)), bell[0]};
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_SIMD_NORMAL_TAIL_INL_H_
