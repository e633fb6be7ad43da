// The types of PTX, and functions of the numbers in them.
#ifndef HEED_TESTS_CUDA_INTERPRETER_TYPES_H_
#define HEED_TESTS_CUDA_INTERPRETER_TYPES_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace heed::interpreter {

enum class Type {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kBF16,
  kF16x2,
  kBF16x2,
  kE4M3x2,
  kF32,
  kF64
};

inline Type TypeOf(std::string_view word) {
  constexpr struct {
    std::string_view name;
    Type type;
  } kTypes[] = {{"pred", Type::kPred},   {"b8", Type::kB8},         {"b16", Type::kB16},
                {"b32", Type::kB32},     {"b64", Type::kB64},       {"u8", Type::kU8},
                {"u16", Type::kU16},     {"u32", Type::kU32},       {"u64", Type::kU64},
                {"s8", Type::kS8},       {"s16", Type::kS16},       {"s32", Type::kS32},
                {"s64", Type::kS64},     {"f16", Type::kF16},       {"bf16", Type::kBF16},
                {"f16x2", Type::kF16x2}, {"bf16x2", Type::kBF16x2}, {"e4m3x2", Type::kE4M3x2},
                {"f32", Type::kF32},     {"f64", Type::kF64}};
  for (const auto& entry : kTypes) {
    if (entry.name == word) return entry.type;
  }
  return Type::kNone;
}

inline int BytesOf(Type type) {
  switch (type) {
    case Type::kB8:
    case Type::kU8:
    case Type::kS8:
      return 1;
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
    case Type::kBF16:
    case Type::kE4M3x2:
      return 2;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
      return 8;
    case Type::kPred:
    case Type::kNone:
      return 0;
    default:
      return 4;
  }
}
inline bool IsSigned(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}

inline float HalfToFloat(uint16_t bits) {
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}
inline uint16_t FloatToHalf(float x) { return std::bit_cast<uint16_t>(static_cast<_Float16>(x)); }
inline float BFloatToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
// To nearest even; NaN is 0x7fff.
inline uint16_t FloatToBFloat(float x) {
  if (std::isnan(x)) return 0x7fff;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
// S.EEEE.MMM of bias 7, without infinities; 0x7f and 0xff are NaN.
inline float E4M3ToFloat(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  float x = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                          : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if (exponent == 15 && mantissa == 7) x = std::nanf("");
  return (bits & 0x80) != 0 ? -x : x;
}
// To nearest even, what is beyond 448 to 448 (.satfinite); NaN is 0x7f.
inline uint8_t FloatToE4M3(float x) {
  if (std::isnan(x)) return 0x7f;
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  const float size = std::fabs(x);
  if (size >= 448) return sign | 0x7e;
  int exponent = size == 0 ? -6 : std::max(std::ilogb(size), -6);
  float units = std::nearbyint(std::ldexp(size, 3 - exponent));  // 8 to 16, less where subnormal
  if (units == 16) units = 8, ++exponent;
  if (units < 8) return sign | static_cast<uint8_t>(units);
  return sign | static_cast<uint8_t>((exponent + 7) << 3 | (static_cast<int>(units) - 8));
}

inline float FlushSubnormal(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}

}  // namespace heed::interpreter

#endif  // HEED_TESTS_CUDA_INTERPRETER_TYPES_H_
