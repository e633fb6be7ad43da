// Storage types to float and back: every half, bfloat16 and float8 of every target against numbers
// built with ldexp; rounding at and beside every midpoint.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/convert_test.cc"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "random.h"
#include "simd_targets.h"
#include "src/simd/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::testing {
namespace HWY_NAMESPACE {

void ToFloats(DType dtype, const void* from, size_t count, float* to) {
  heed::HWY_NAMESPACE::StoredRowToFloats(dtype, from, 1.0f, count, to);
}
void FromFloats(const float* from, size_t count, DType dtype, void* to) {
  heed::HWY_NAMESPACE::FloatsToStoredRow(from, count, dtype, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace heed::testing
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::testing {
namespace {

HWY_EXPORT(ToFloats);
HWY_EXPORT(FromFloats);

class Convert : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Convert);

// A small float format: sign, exponent, mantissa bits.
struct Format {
  DType dtype;
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // else only the largest code is NaN
};
constexpr Format kFormats[] = {{DType::kFloat16, 5, 10, true},
                               {DType::kBFloat16, 8, 7, true},
                               {DType::kFloat8E4M3, 4, 3, false}};

// The number that a code stands for, by definition.
double Meaning(const Format& format, uint32_t code) {
  const uint32_t mantissa = code & ((1u << format.mantissa_bits) - 1);
  const uint32_t exponent = code >> format.mantissa_bits & ((1u << format.exponent_bits) - 1);
  const uint32_t sign = code >> (format.mantissa_bits + format.exponent_bits) & 1;
  const uint32_t top = (1u << format.exponent_bits) - 1;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  double size = 0;
  if (format.has_infinity && exponent == top) {
    size = mantissa == 0 ? HUGE_VAL : std::nan("");
  } else if (!format.has_infinity && exponent == top && mantissa == 7) {
    size = std::nan("");
  } else if (exponent == 0) {
    size = std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
  } else {
    size = std::ldexp((1u << format.mantissa_bits) + mantissa,
                      static_cast<int>(exponent) - bias - format.mantissa_bits);
  }
  return sign ? -size : size;
}

uint32_t CodeCount(const Format& format) {
  return 1u << (1 + format.exponent_bits + format.mantissa_bits);
}

// Codes as memory: one or two bytes each.
std::vector<uint8_t> Bytes(const Format& format, const std::vector<uint32_t>& codes) {
  std::vector<uint8_t> bytes;
  for (const uint32_t code : codes) {
    bytes.push_back(static_cast<uint8_t>(code));
    if (ElementSize(format.dtype) == 2) bytes.push_back(static_cast<uint8_t>(code >> 8));
  }
  return bytes;
}

float Scalar(const Format& format, uint32_t code) {
  if (format.dtype == DType::kFloat16) return ToFloat(Float16{static_cast<uint16_t>(code)});
  if (format.dtype == DType::kBFloat16) return ToFloat(BFloat16{static_cast<uint16_t>(code)});
  return ToFloat(Float8E4M3{static_cast<uint8_t>(code)});
}

uint32_t ScalarCode(const Format& format, float x) {
  if (format.dtype == DType::kFloat16) return ToFloat16(x).bits;
  if (format.dtype == DType::kBFloat16) return ToBFloat16(x).bits;
  return ToFloat8E4M3(x).bits;
}

void ExpectMeans(const Format& format, uint32_t code, float actual) {
  const double expected = Meaning(format, code);
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << DTypeName(format.dtype) << " code " << code;
  } else {
    EXPECT_EQ(std::bit_cast<uint32_t>(actual),
              std::bit_cast<uint32_t>(static_cast<float>(expected)))
        << DTypeName(format.dtype) << " code " << code;
  }
}

TEST_P(Convert, EveryCodeMeansItsNumber) {
  for (const Format& format : kFormats) {
    std::vector<uint32_t> codes(CodeCount(format));
    for (uint32_t code = 0; code < codes.size(); ++code) codes[code] = code;
    std::vector<float> floats(codes.size());
    HWY_DYNAMIC_DISPATCH(ToFloats)
    (format.dtype, Bytes(format, codes).data(), codes.size(), floats.data());
    for (const uint32_t code : codes) {
      ExpectMeans(format, code, floats[code]);
      ExpectMeans(format, code, Scalar(format, code));
    }
  }
}

TEST_P(Convert, RowsOfAnyLengthConvertAlike) {
  for (const Format& format : kFormats) {
    for (size_t count = 0; count < 40; ++count) {
      std::vector<uint32_t> codes;
      for (size_t n = 0; n < count; ++n) codes.push_back(static_cast<uint32_t>(n * 7 % 120));
      std::vector<float> floats(count + 1, -1.0f);
      HWY_DYNAMIC_DISPATCH(ToFloats)
      (format.dtype, Bytes(format, codes).data(), count, floats.data());
      for (size_t n = 0; n < count; ++n) ExpectMeans(format, codes[n], floats[n]);
      EXPECT_EQ(floats[count], -1.0f);
    }
  }
}

TEST_P(Convert, EveryInt8MeansItself) {
  std::vector<int8_t> bytes;
  for (int x = -128; x < 128; ++x) bytes.push_back(static_cast<int8_t>(x));
  std::vector<float> floats(256);
  HWY_DYNAMIC_DISPATCH(ToFloats)(DType::kInt8, bytes.data(), 256, floats.data());
  for (int x = -128; x < 128; ++x) {
    EXPECT_EQ(floats[static_cast<size_t>(x + 128)], static_cast<float>(x));
  }
}

// Floats around every point where rounding changes: each code, each midpoint to the next one, and
// the neighbours of both; ends and NaN.
std::vector<float> Trials(const Format& format) {
  std::vector<float> trials = {0.0f, 1e-45f, 1e-38f, 3.4e38f, INFINITY, NAN};
  for (uint32_t code = 0; code < CodeCount(format) / 2; ++code) {
    const double here = Meaning(format, code);
    const double next = Meaning(format, code + 1);
    if (!std::isfinite(here)) continue;
    std::vector<float> centers = {static_cast<float>(here)};
    if (std::isfinite(next)) centers.push_back(static_cast<float>((here + next) / 2));
    for (const float x : centers) {
      trials.insert(trials.end(), {x, std::nextafter(x, 0.0f), std::nextafter(x, HUGE_VALF)});
    }
  }
  const size_t positive = trials.size();
  for (size_t n = 0; n < positive; ++n) trials.push_back(-trials[n]);
  return trials;
}

// Whether `code` is a nearest number to x, an even one if there are two.
void ExpectNearest(const Format& format, float x, uint32_t code) {
  const std::string what = std::string(DTypeName(format.dtype)) + " of " + std::to_string(x);
  const double rounded = Meaning(format, code);
  if (std::isnan(x)) {
    EXPECT_TRUE(std::isnan(rounded)) << what;
    return;
  }
  ASSERT_FALSE(std::isnan(rounded)) << what;
  EXPECT_EQ(std::signbit(rounded), std::signbit(x)) << what;
  const uint32_t size = code & (CodeCount(format) / 2 - 1);
  // Rounding happens as if the exponent had no end.
  const auto endless = [&](uint32_t c) {
    const double value = std::abs(Meaning(format, c));
    if (std::isfinite(value)) return value;
    return 2 * std::abs(Meaning(format, c - 1)) - std::abs(Meaning(format, c - 2));
  };
  const double distance = std::abs(std::abs(static_cast<double>(x)) - endless(size));
  if (std::isinf(x) || std::abs(static_cast<double>(x)) > endless(size)) {
    if (std::isinf(rounded) || (!format.has_infinity && std::abs(rounded) == 448)) return;
  }
  for (const int step : {-1, 1}) {
    if (size == 0 && step < 0) continue;
    const uint32_t other = size + static_cast<uint32_t>(step);
    if (!format.has_infinity && std::isnan(Meaning(format, other))) continue;
    if (std::isnan(endless(other))) continue;
    const double other_distance = std::abs(std::abs(static_cast<double>(x)) - endless(other));
    EXPECT_LE(distance, other_distance) << what;
    if (distance == other_distance) {
      EXPECT_EQ(size % 2, 0u) << what;
    }
  }
}

TEST_P(Convert, RoundsToNearestEven) {
  for (const Format& format : kFormats) {
    const std::vector<float> trials = Trials(format);
    for (const float x : trials) ExpectNearest(format, x, ScalarCode(format, x));
    if (format.dtype == DType::kFloat8E4M3) continue;  // stored by caches, one scalar at a time
    std::vector<uint16_t> codes(trials.size() + 1, 0xabcd);
    HWY_DYNAMIC_DISPATCH(FromFloats)(trials.data(), trials.size(), format.dtype, codes.data());
    for (size_t n = 0; n < trials.size(); ++n) ExpectNearest(format, trials[n], codes[n]);
    EXPECT_EQ(codes.back(), 0xabcd);
  }
}

TEST_P(Convert, RoundsRandomBitsLikeTheScalarCode) {
  Random random(5);
  std::vector<float> floats(4096);
  for (float& x : floats) x = std::bit_cast<float>(static_cast<uint32_t>(random.Next()));
  for (const Format& format : kFormats) {
    if (format.dtype == DType::kFloat8E4M3) continue;
    std::vector<uint16_t> codes(floats.size());
    HWY_DYNAMIC_DISPATCH(FromFloats)(floats.data(), floats.size(), format.dtype, codes.data());
    for (size_t n = 0; n < floats.size(); ++n) {
      if (std::isnan(floats[n])) continue;
      EXPECT_EQ(codes[n], ScalarCode(format, floats[n])) << floats[n];
    }
  }
}

}  // namespace
}  // namespace heed::testing
#endif  // HWY_ONCE
