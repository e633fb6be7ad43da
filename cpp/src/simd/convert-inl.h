// Storage types to float32 and back, a row at a time. Exact one way, rounded to nearest even the
// other; nothing is read or written beyond the row.
#if defined(HEED_SIMD_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_SIMD_CONVERT_INL_H_
#undef HEED_SIMD_CONVERT_INL_H_
#else
#define HEED_SIMD_CONVERT_INL_H_
#endif

#include <cstring>

#include "heed/dtype.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// x86 from AVX2 on has instructions for float16. Highway's other targets either lack them or treat
// infinities as numbers, hence integers there.
#undef HEED_F16_INSTRUCTIONS
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define HEED_F16_INSTRUCTIONS 1
#else
#define HEED_F16_INSTRUCTIONS 0
#endif

// One vector of floats from the storage type, and back.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V LoadStored(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V LoadStored(D d, const BFloat16* from) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> du16;
  const auto bits = hn::PromoteTo(du, hn::LoadU(du16, &from->bits));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

// Two vectors of floats: numbers at even places, which a shift makes, and at odd ones, by a mask.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void LoadEvenOdd(D d, const BFloat16* from, V& even, V& odd) {
  const hn::RebindToUnsigned<D> du;
  const hn::Repartition<uint16_t, D> du16;
  const auto pairs = hn::BitCast(du, hn::LoadU(du16, &from->bits));
  even = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
  odd = hn::BitCast(d, hn::And(pairs, hn::Set(du, 0xffff0000u)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V LoadStored(D d, const Float16* from) {
#if HEED_F16_INSTRUCTIONS
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
#else
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> du16;
  const auto bits = hn::PromoteTo(du, hn::LoadU(du16, &from->bits));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
  const auto rest = hn::And(bits, hn::Set(du, 0x7fff));
  const auto shifted = hn::ShiftLeft<13>(rest);
  const auto subnormal =
      hn::BitCast(du, hn::Mul(hn::ConvertTo(d, hn::BitCast(di, rest)), hn::Set(d, 0x1p-24f)));
  const auto normal = hn::Add(shifted, hn::Set(du, 112u << 23));
  const auto infinite = hn::Or(shifted, hn::Set(du, 0x7f800000));
  auto size = hn::IfThenElse(hn::Lt(rest, hn::Set(du, 0x0400)), subnormal, normal);
  size = hn::IfThenElse(hn::Gt(rest, hn::Set(du, 0x7bff)), infinite, size);
  return hn::BitCast(d, hn::Or(size, sign));
#endif
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V LoadStored(D d, const int8_t* from) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<int8_t, D> di8;
  return hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(di8, from)));
}

// With its bits where a wider type has exponent and fraction, a code reads as a number 2^-8 as
// large in float16, whose conversion knows subnormal ones. In float32 it reads as f, wrong only
// where it is zero or subnormal, because nothing stands for the one before the point there: 2 f -
// 2^-6 is right for those, and smaller than f for those alone.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V LoadStored(D d, const Float8E4M3* from) {
  const hn::Rebind<int8_t, D> di8;
  const auto stored = hn::LoadU(di8, reinterpret_cast<const int8_t*>(from));
#if HEED_F16_INSTRUCTIONS
  const hn::Rebind<int16_t, D> di16;
  const hn::Rebind<hwy::float16_t, D> d16;
  const auto all_but_top = hn::Set(di16, static_cast<int16_t>(0xbfff));
  const auto bits = hn::And(hn::ShiftLeft<7>(hn::PromoteTo(di16, stored)), all_but_top);
  // The next number overflows into the top bit of the exponent for NaN alone.
  const auto next = hn::Add(bits, hn::Set(di16, 0x0080));
  const auto f16 = hn::BitCast(d16, hn::OrAnd(bits, next, hn::Set(di16, 0x4000)));
  return hn::Mul(hn::PromoteTo(d, f16), hn::Set(d, 256.0f));
#else
  const hn::RebindToSigned<D> di;
  const auto code = hn::PromoteTo(di, stored);
  const auto size = hn::And(hn::ShiftLeft<20>(code), hn::Set(di, 0x07f00000));
  const V f = hn::BitCast(d, hn::Add(size, hn::Set(di, 120 << 23)));
  const V x = hn::Min(f, hn::MulSub(f, hn::Set(d, 2.0f), hn::Set(d, 0x1p-6f)));
  const V nan = hn::VecFromMask(d, hn::Eq(f, hn::Set(d, 480.0f)));
  const V sign = hn::And(hn::BitCast(d, code), hn::SignBit(d));
  return hn::Or3(x, nan, sign);
#endif
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void StoreStored(D d, V x, float* to) {
  hn::StoreU(x, d, to);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void StoreStored(D /*d*/, V x, BFloat16* to) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> du16;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff))));
  const auto quiet =
      hn::Or(hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000)), hn::Set(du, 0x7fc0));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(x));
  hn::StoreU(hn::TruncateTo(du16, hn::IfThenElse(is_nan, quiet, rounded)), du16, &to->bits);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void StoreStored([[maybe_unused]] D d, V x, Float16* to) {
#if HEED_F16_INSTRUCTIONS
  const hn::Rebind<hwy::float16_t, D> d16;
  hn::StoreU(hn::DemoteTo(d16, x), d16, reinterpret_cast<hwy::float16_t*>(to));
#else
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> du16;
  const auto bits = hn::BitCast(du, x);
  const auto size = hn::And(bits, hn::Set(du, 0x7fffffff));
  const auto odd = hn::And(hn::ShiftRight<13>(size), hn::Set(du, 1));
  const auto normal = hn::ShiftRight<13>(
      hn::Sub(hn::Add(size, hn::Add(odd, hn::Set(du, 0xfff))), hn::Set(du, 112u << 23)));
  const auto subnormal = hn::And(hn::BitCast(du, hn::Add(hn::BitCast(d, size), hn::Set(d, 0.5f))),
                                 hn::Set(du, 0xffff));
  auto half = hn::IfThenElse(hn::Lt(size, hn::Set(du, 0x38800000)), subnormal, normal);
  half = hn::IfThenElse(hn::Gt(size, hn::Set(du, 0x477fffff)), hn::Set(du, 0x7c00), half);
  half = hn::IfThenElse(hn::Gt(size, hn::Set(du, 0x7f800000)), hn::Set(du, 0x7e00), half);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000));
  hn::StoreU(hn::TruncateTo(du16, hn::Or(half, sign)), du16, &to->bits);
#endif
}

inline float StoredToFloat(float x) { return x; }
inline float StoredToFloat(int8_t x) { return static_cast<float>(x); }
template <class T>
inline float StoredToFloat(T x) {
  return ToFloat(x);
}
inline void FloatToStored(float x, float* to) { *to = x; }
inline void FloatToStored(float x, Float16* to) { *to = ToFloat16(x); }
inline void FloatToStored(float x, BFloat16* to) { *to = ToBFloat16(x); }

template <class T>
inline void RowToFloats(const T* HWY_RESTRICT from, size_t count, float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t c = 0;
  for (; c + lanes <= count; c += lanes) hn::StoreU(LoadStored(d, from + c), d, to + c);
  for (; c < count; ++c) to[c] = StoredToFloat(from[c]);
}

// The same times `scale`.
template <class T>
inline void ScaledRowToFloats(const T* HWY_RESTRICT from, float scale, size_t count,
                              float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t c = 0;
  for (; c + lanes <= count; c += lanes) {
    hn::StoreU(hn::Mul(LoadStored(d, from + c), hn::Set(d, scale)), d, to + c);
  }
  for (; c < count; ++c) to[c] = StoredToFloat(from[c]) * scale;
}

template <class T>
inline void RowFromFloats(const float* HWY_RESTRICT from, size_t count, T* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t c = 0;
  for (; c + lanes <= count; c += lanes) StoreStored(d, hn::LoadU(d, from + c), to + c);
  for (; c < count; ++c) FloatToStored(from[c], to + c);
}

// `from` as floats. Any storage type of dtype.h; only int8 and float8 have a scale.
inline void StoredRowToFloats(DType dtype, const void* from, float scale, size_t count, float* to) {
  switch (dtype) {
    case DType::kFloat16:
      return RowToFloats(static_cast<const Float16*>(from), count, to);
    case DType::kBFloat16:
      return RowToFloats(static_cast<const BFloat16*>(from), count, to);
    case DType::kInt8:
      return ScaledRowToFloats(static_cast<const int8_t*>(from), scale, count, to);
    case DType::kFloat8E4M3:
      return ScaledRowToFloats(static_cast<const Float8E4M3*>(from), scale, count, to);
    default:
      std::memcpy(to, from, count * sizeof(float));
  }
}

// Floats as float32, float16 or bfloat16.
inline void FloatsToStoredRow(const float* from, size_t count, DType dtype, void* to) {
  switch (dtype) {
    case DType::kFloat16:
      return RowFromFloats(from, count, static_cast<Float16*>(to));
    case DType::kBFloat16:
      return RowFromFloats(from, count, static_cast<BFloat16*>(to));
    default:
      std::memcpy(to, from, count * sizeof(float));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_SIMD_CONVERT_INL_H_
