// Numbers in fixed point, and their products with bytes: every sum of them is exact.
#if defined(HEED_SIMD_FIXED_POINT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_SIMD_FIXED_POINT_INL_H_
#undef HEED_SIMD_FIXED_POINT_INL_H_
#else
#define HEED_SIMD_FIXED_POINT_INL_H_
#endif

#include "hwy/highway.h"
#include "src/simd/fma-inl.h"
#include "src/simd/register_tile-inl.h"

// Targets with an instruction that adds four products of bytes to a lane. As floats, bytes take
// twice as many instructions: two to convert each vector, and vectors a fourth as long.
#undef HEED_MULTIPLIES_BYTES
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
#define HEED_MULTIPLIES_BYTES 1
#else
#define HEED_MULTIPLIES_BYTES 0
#endif

#if HEED_MULTIPLIES_BYTES
HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DI32 = hn::ScalableTag<int32_t>;
using VI32 = hn::Vec<DI32>;
using DU8 = hn::ScalableTag<uint8_t>;
using VU8 = hn::Vec<DU8>;

// Rows that pass together: their sums, three a row, stay in registers.
inline constexpr size_t kByteRows = 4;
inline constexpr size_t kDigits = 3;
// Numbers of a row at most, and columns of values.
inline constexpr size_t kMostBytes = 256;

// Up to kByteRows rows of numbers: digit[0] + 256 digit[1] + 65536 digit[2], times the unit of the
// row, of which the largest number has 127 * 65536. Besides what floats round, half a unit is
// rounded off at most: 1.01 * 2^-24 of the largest number.
struct FixedRows {
  HWY_ALIGN int8_t digits[kByteRows][kDigits][kMostBytes];
  float units[kByteRows];
  // Bytes are multiplied without sign, 128 too large: what that adds, negated.
  int32_t offsets[kByteRows][kDigits];
};

// Row r in fixed point; `number(t)` loads a vector from number t on. False if there is something
// among them that fixed point does not hold: NaN, an infinity, or nothing above 2^-100 but zeros.
template <class Number>
HWY_INLINE bool FixRow(size_t count, size_t r, const Number& number, FixedRows& to) {
  constexpr float kLargest = 127.0f * 65536;
  const DF d;
  const DI32 di;
  const hn::Rebind<int8_t, DI32> di8;
  VF most = hn::Zero(d);
  VF poison = hn::Zero(d);
  for (size_t t = 0; t < count; t += hn::Lanes(d)) {
    const VF x = number(t);
    most = hn::Max(most, hn::Abs(x));
    poison = hn::MulAdd(x, hn::Zero(d), poison);
  }
  const float largest = hn::ReduceMax(d, most);
  if (hn::ReduceSum(d, poison) != 0.0f || (largest != 0 && largest < 0x1p-100f)) return false;
  const VF per_unit = hn::Set(d, largest == 0 ? 0.0f : kLargest / largest);
  to.units[r] = largest / kLargest;
  VI32 sums[kDigits] = {hn::Zero(di), hn::Zero(di), hn::Zero(di)};
  for (size_t t = 0; t < count; t += hn::Lanes(d)) {
    VI32 rest = hn::NearestInt(hn::Mul(number(t), per_unit));
    HWY_UNROLL(3)
    for (size_t i = 0; i < kDigits; ++i) {
      const VI32 digit = hn::ShiftRight<24>(hn::ShiftLeft<24>(rest));
      rest = hn::ShiftRight<8>(hn::Sub(rest, digit));
      sums[i] = hn::Add(sums[i], digit);
      hn::StoreU(hn::DemoteTo(di8, digit), di8, to.digits[r][i] + t);
    }
  }
  for (size_t i = 0; i < kDigits; ++i) to.offsets[r][i] = -128 * hn::ReduceSum(di, sums[i]);
  return true;
}

// sums[r][i] += digit i of numbers [t, t + 4) of row r times four bytes of each lane.
template <size_t kRows>
HWY_INLINE void AddFourBytes(VU8 bytes, const FixedRows& numbers, size_t t,
                             VI32 (&sums)[kRows][kDigits]) {
  const DI32 di;
  const hn::Repartition<int8_t, DI32> di8;
  HWY_UNROLL(4)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(3)
    for (size_t i = 0; i < kDigits; ++i) {
      int32_t four;
      hwy::CopyBytes<sizeof(four)>(numbers.digits[r][i] + t, &four);
      const auto digits = hn::BitCast(di8, hn::Set(di, four));
      sums[r][i] = hn::SumOfMulQuadAccumulate(di, bytes, digits, sums[r][i]);
    }
  }
}

// Sums of digits below 2^24 as one float.
HWY_INLINE VF JoinDigits(const VI32 (&sums)[kDigits]) {
  const DF d;
  const VF base = hn::Set(d, 256.0f);
  const VF high = Fma(hn::ConvertTo(d, sums[2]), base, hn::ConvertTo(d, sums[1]));
  return Fma(high, base, hn::ConvertTo(d, sums[0]));
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();
#endif  // HEED_MULTIPLIES_BYTES

#endif  // HEED_SIMD_FIXED_POINT_INL_H_
