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
inline constexpr size_t kMostFours = kMostBytes / 4;

// Digit i of four neighbours of a row, which are multiplied together, in the bytes of digits[i].
// The fourth digit is none.
struct FourNumbers {
  int32_t digits[4];
};

// Up to kByteRows rows of numbers: digit[0] + 256 digit[1] + 65536 digit[2], times the unit of the
// row, of which the largest number has 127 * 65536. Besides what floats round, half a unit is
// rounded off at most: 1.01 * 2^-24 of the largest number.
struct FixedRows {
  HWY_ALIGN FourNumbers fours[kByteRows * kMostFours];  // [row][four]
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
  const hn::Repartition<int8_t, DI32> di8;
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
  // Digits from -128 to 127 are bytes without sign once 128 is added to each.
  const VI32 raise = hn::Set(di, 0x808080);
  const auto order =
      hn::Dup128VecFromValues(DU8(), 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const VU8 minus_raise = hn::Set(DU8(), 128);
  VI32 sums = hn::Zero(di);
  for (size_t t = 0; t < count; t += hn::Lanes(d)) {
    const VI32 whole = hn::NearestInt(hn::Mul(number(t), per_unit));
    const auto bytes = hn::BitCast(DU8(), hn::Xor(hn::Add(whole, raise), raise));
    const auto digits = hn::BitCast(di8, hn::TableLookupBytes(bytes, order));
    hn::Store(hn::BitCast(di, digits), di, to.fours[r * kMostFours + t / 4].digits);
    sums = hn::SumOfMulQuadAccumulate(di, minus_raise, digits, sums);
  }
  HWY_ALIGN int32_t lanes[hn::MaxLanes(di)];
  hn::Store(sums, di, lanes);
  for (size_t i = 0; i < kDigits; ++i) {
    int32_t sum = 0;
    for (size_t n = i; n < hn::Lanes(di); n += 4) sum += lanes[n];
    to.offsets[r][i] = -sum;
  }
  return true;
}

// sums[r][i] += digit i of four numbers of row r times four bytes of each lane. `fours` are those
// of row 0.
template <size_t kRows>
HWY_INLINE void AddFourBytes(VU8 bytes, const FourNumbers* HWY_RESTRICT fours,
                             VI32 (&sums)[kRows][kDigits]) {
  const DI32 di;
  const hn::Repartition<int8_t, DI32> di8;
#if HWY_COMPILER_GCC
  // One register for all twelve, which GCC would give one each, and spill them.
  asm("" : "+r"(fours));
#endif
  HWY_UNROLL(4)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(3)
    for (size_t i = 0; i < kDigits; ++i) {
      const auto digits = hn::BitCast(di8, hn::Set(di, fours[r * kMostFours].digits[i]));
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
