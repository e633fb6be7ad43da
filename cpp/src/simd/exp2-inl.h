// 2^x for x <= 0, the inner function of softmax.
#if defined(HEED_SIMD_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_SIMD_EXP2_INL_H_
#undef HEED_SIMD_EXP2_INL_H_
#else
#define HEED_SIMD_EXP2_INL_H_
#endif

#include "hwy/highway.h"
#include "src/simd/fma-inl.h"
#include "src/simd/in_memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Replaces several vectors x by 2^x, for x in [-inf, 0] (and a little beyond). 2^0 is exactly 1,
// x <= -127 gives exactly 0, -127 < x < -126 at most 2^-126, NaN gives NaN. Max error for x >= -126
// 1.6 ULP, 1.4 where Fma fuses, 1.2 with a table (tests/cpp/simd/exp2_test.cc).
//
// A single chain of these steps takes about 35 cycles, and the scheduler of Zen 3 holds fewer than
// four chains: hence several vectors side by side, step by step.
#if HWY_TARGET <= HWY_AVX2
// x splits into a whole number of sixteenths (eighths with AVX2), rounded by adding 1.5 * 2^19, and
// f. One permutation looks up the mantissa of 2^(i/16); 2^f - 1 is a polynomial of degree 3
// (relative error 1.6e-9, 2.6e-8 with AVX2). Half the multiplications of the scheme below: softmax
// takes 15 % less time with AVX-512, 9 % less with AVX2 (Zen 4).
template <size_t kLanes>
struct Roots;
template <>
struct Roots<16> {
  static constexpr int kBits = 4;
  static constexpr float kC1 = 0x1.62e430p-1f, kC2 = 0x1.ebfff4p-3f, kC3 = 0x1.c6acd8p-5f;
  HWY_ALIGN static constexpr uint32_t kMantissas[16] = {
      0x000000, 0x05AAC3, 0x0B95C2, 0x11C3D3, 0x1837F0, 0x1EF532, 0x25FED7, 0x2D583F,
      0x3504F3, 0x3D08A4, 0x45672A, 0x4E248C, 0x5744FD, 0x60CCDF, 0x6AC0C7, 0x75257D};
};
template <>
struct Roots<8> {
  static constexpr int kBits = 3;
  static constexpr float kC1 = 0x1.62e432p-1f, kC2 = 0x1.ec0c22p-3f, kC3 = 0x1.c690d6p-5f;
  HWY_ALIGN static constexpr uint32_t kMantissas[8] = {0x000000, 0x0B95C2, 0x1837F0, 0x25FED7,
                                                       0x3504F3, 0x45672A, 0x5744FD, 0x6AC0C7};
};

// Reads only the lowest bits of an index; TableLookupLanes would want the others cleared.
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE hn::Vec512<float> LookUp(hn::Vec512<float> table, hn::Vec512<int32_t> index) {
  return hn::Vec512<float>{_mm512_permutexvar_ps(index.raw, table.raw)};
}
#else
HWY_INLINE hn::Vec256<float> LookUp(hn::Vec256<float> table, hn::Vec256<int32_t> index) {
  return hn::Vec256<float>{_mm256_permutevar8x32_ps(table.raw, index.raw)};
}
#endif

template <size_t kCount, class D, class V = hn::Vec<D>>
HWY_INLINE void Exp2NonPositive(D d, V (&x)[kCount]) {
  using R = Roots<hn::MaxLanes(D())>;
  const hn::RebindToSigned<D> di;
  const hn::RebindToUnsigned<D> du;
  const V mantissas = hn::BitCast(d, hn::Load(du, R::kMantissas));
  // The sum's low bits are 16 (n + 127) + i.
  const V magic = hn::Set(d, static_cast<float>((3 << (22 - R::kBits)) + 127));
  const V exponent = hn::BitCast(d, hn::Set(di, 0x7F800000));
  V power[kCount];
  V p[kCount];
  for (size_t i = 0; i < kCount; ++i) x[i] = RaiseToBound(x[i], hn::Set(d, -127.0f));
  for (size_t i = 0; i < kCount; ++i) power[i] = hn::Add(x[i], magic);
  for (size_t i = 0; i < kCount; ++i) x[i] = hn::Sub(x[i], hn::Sub(power[i], magic));
  for (size_t i = 0; i < kCount; ++i) {
    const auto bits = hn::BitCast(di, power[i]);
    const V whole = hn::BitCast(d, hn::ShiftLeft<23 - R::kBits>(bits));
    power[i] = hn::OrAnd(LookUp(mantissas, bits), whole, exponent);
  }
  for (size_t i = 0; i < kCount; ++i) {
    const V f = x[i];
    p[i] = Fma(f, hn::Set(d, R::kC3), hn::Set(d, R::kC2));
    p[i] = hn::Mul(f, Fma(f, p[i], hn::Set(d, R::kC1)));
  }
  for (size_t i = 0; i < kCount; ++i) x[i] = Fma(power[i], p[i], power[i]);
}
#else
// x splits into a whole part n, rounded by adding 1.5 * 2^23, and f in [-1/2, 1/2]; 2^f is the
// minimax polynomial of degree 6 (relative error 2.6e-9 before rounding), by Estrin's scheme, whose
// chains are shorter; 2^n is built from bits. The last step multiplies instead of adding to the
// exponent, which costs one instruction and keeps NaN a NaN.
struct Exp2Constants {
  float least = -127.0f;
  float magic = 12582912.0f;
  float c[7] = {1.0f,           0x1.62e432p-1f,  0x1.ebfbe2p-3f, 0x1.c6ae72p-5f,
                0x1.3b270ep-7f, 0x1.5f7276p-10f, 0x1.470b4ap-13f};
};
inline constexpr Exp2Constants kExp2;

template <size_t kCount, class D, class V = hn::Vec<D>>
HWY_INLINE void Exp2NonPositive(D d, V (&x)[kCount]) {
  const hn::RebindToSigned<D> di;
  const Exp2Constants& k = InMemory(kExp2);
  const auto constant = [&](const float& value) HWY_ATTR { return hn::Set(d, value); };
  const V magic = constant(k.magic);
  V power[kCount];
  V p[kCount];
  for (size_t i = 0; i < kCount; ++i) x[i] = RaiseToBound(x[i], constant(k.least));
  for (size_t i = 0; i < kCount; ++i) power[i] = hn::Add(x[i], magic);
  for (size_t i = 0; i < kCount; ++i) x[i] = hn::Sub(x[i], hn::Sub(power[i], magic));
  for (size_t i = 0; i < kCount; ++i) {
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, power[i]));
    power[i] = hn::BitCast(d, hn::Add(exponent, hn::BitCast(di, constant(k.c[0]))));
  }
  for (size_t i = 0; i < kCount; ++i) {
    const V f = x[i];
    const V f2 = hn::Mul(f, f);
    const V low = Fma(f, constant(k.c[1]), constant(k.c[0]));
    const V middle = Fma(f, constant(k.c[3]), constant(k.c[2]));
    const V high = Fma(f, constant(k.c[5]), constant(k.c[4]));
    p[i] = Fma(f2, constant(k.c[6]), high);
    p[i] = Fma(f2, p[i], middle);
    p[i] = Fma(f2, p[i], low);
  }
  for (size_t i = 0; i < kCount; ++i) x[i] = hn::Mul(p[i], power[i]);
}
#endif

inline constexpr float kLog2E = 1.44269504088896340736f;

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_SIMD_EXP2_INL_H_
