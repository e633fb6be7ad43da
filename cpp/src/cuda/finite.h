// Which numbers are neither infinite nor NaN.
#ifndef HEED_SRC_CUDA_FINITE_H_
#define HEED_SRC_CUDA_FINITE_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "heed/dtype.h"
#include "src/cuda/device.h"

namespace heed::cuda {

HEED_DEVICE bool IsFinite(float x) { return fabsf(x) < HUGE_VALF; }

// Whether a number is infinite or NaN: all bits of its exponent are set. float8 has no infinity,
// and a NaN where all bits but the sign are.
HEED_DEVICE constexpr bool IsNotFinite(Float16, uint16_t bits) { return (~bits & 0x7c00) == 0; }
HEED_DEVICE constexpr bool IsNotFinite(BFloat16, uint16_t bits) { return (~bits & 0x7f80) == 0; }
HEED_DEVICE constexpr bool IsNotFinite(Float8E4M3, uint16_t bits) { return (~bits & 0x7f) == 0; }

// The same of all numbers of a word at once: in CarriesOfNonFinite<T>(word) & kCarries<T> those
// that are not finite have a bit, where their exponent of ones (of float8 all bits but the sign)
// carries into the sign. Words are joined by | before the mask.
template <class T>
inline constexpr uint32_t kCarries = sizeof(T) == 1 ? 0x80808080u : 0x80008000u;
template <class T>
HEED_DEVICE constexpr uint32_t CarriesOfNonFinite(uint32_t word) {
  constexpr uint32_t kUnit = std::is_same_v<T, Float16>    ? 0x04000400u
                             : std::is_same_v<T, BFloat16> ? 0x00800080u
                                                           : 0x01010101u;
  return (word & ~kCarries<T>)+kUnit;
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_FINITE_H_
