// Element types of storage, and the small ones as numbers. All arithmetic is float32 or wider;
// these say only how tensors lie in memory.
#ifndef HEED_DTYPE_H_
#define HEED_DTYPE_H_

#include <bit>
#include <cstdint>

#include "heed/standard.h"

namespace heed {

// kFloat16 is IEEE binary16, kBFloat16 the upper half of a float32, kFloat8E4M3 the OCP format
// without infinities (largest value 448). kInt8 and kFloat8E4M3 are for caches, where every row has
// a scale.
enum class DType { kFloat32, kFloat64, kInt32, kUint8, kFloat16, kBFloat16, kInt8, kFloat8E4M3 };

// Bytes of one element.
constexpr int64_t ElementSize(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kUint8:
    case DType::kInt8:
    case DType::kFloat8E4M3:
      return 1;
  }
  return 0;
}

// "float32", "bfloat16", "float8_e4m3", ...
constexpr const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kInt32:
      return "int32";
    case DType::kUint8:
      return "uint8";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kInt8:
      return "int8";
    case DType::kFloat8E4M3:
      return "float8_e4m3";
  }
  return "unknown";
}

// One number in 16 or 8 bits. Conversion to float is exact; conversion from float rounds to
// nearest, ties to even. NaN stays NaN; beyond the largest value float16 and bfloat16 give
// infinity, float8 its largest value.
struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
struct Float8E4M3 {
  uint8_t bits;
};

constexpr float ToFloat(Float16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
  const uint32_t rest = x.bits & 0x7fff;
  uint32_t bits = 0;
  if (rest >= 0x7c00) {
    bits = 0x7f800000 | rest << 13;
  } else if (rest >= 0x0400) {
    bits = (rest << 13) + (112u << 23);
  } else {
    bits = std::bit_cast<uint32_t>(static_cast<float>(rest) * 0x1p-24f);
  }
  return std::bit_cast<float>(sign | bits);
}

constexpr float ToFloat(BFloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

constexpr float ToFloat(Float8E4M3 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x80) << 24;
  const uint32_t rest = x.bits & 0x7f;
  uint32_t bits = 0;
  if (rest == 0x7f) {
    bits = 0x7fc00000;
  } else if (rest >= 0x08) {
    bits = (rest << 20) + (120u << 23);
  } else {
    bits = std::bit_cast<uint32_t>(static_cast<float>(rest) * 0x1p-9f);
  }
  return std::bit_cast<float>(sign | bits);
}

constexpr Float16 ToFloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t size = bits & 0x7fffffff;
  uint32_t half = 0;
  if (size > 0x7f800000) {
    half = 0x7e00;
  } else if (size >= 0x47800000) {
    half = 0x7c00;
  } else if (size >= 0x38800000) {
    half = (size + 0xfff + (size >> 13 & 1) - (112u << 23)) >> 13;
  } else {
    // The unit of 1/2 is the smallest float16: the addition rounds.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) & 0xffff;
  }
  return {static_cast<uint16_t>((bits >> 16 & 0x8000) | half)};
}

constexpr BFloat16 ToBFloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffff) > 0x7f800000) {
    return {static_cast<uint16_t>((bits >> 16 & 0x8000) | 0x7fc0)};
  }
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

constexpr Float8E4M3 ToFloat8E4M3(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t size = bits & 0x7fffffff;
  uint32_t small = 0;
  if (size > 0x7f800000) {
    small = 0x7f;
  } else if (size >= 0x43e00000) {  // 448
    small = 0x7e;
  } else if (size >= 0x3c800000) {  // 2^-6
    small = (size + 0x7ffff + (size >> 20 & 1) - (120u << 23)) >> 20;
  } else {
    // The unit of 2^14 is the smallest float8: the addition rounds.
    small = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0x1p14f) & 0xff;
  }
  return {static_cast<uint8_t>((bits >> 24 & 0x80) | small)};
}

}  // namespace heed

#endif  // HEED_DTYPE_H_
