// Which numbers are neither infinite nor NaN.
#ifndef HEED_SRC_CUDA_FINITE_H_
#define HEED_SRC_CUDA_FINITE_H_

#include <cmath>
#include <cstdint>

#include "heed/dtype.h"
#include "src/cuda/device.h"

namespace heed::cuda {

HEED_DEVICE bool IsFinite(float x) { return fabsf(x) < HUGE_VALF; }

// Whether a number is infinite or NaN: all bits of its exponent are set. float8 has no infinity,
// and a NaN where all bits but the sign are.
HEED_DEVICE constexpr bool IsNotFinite(Float16, uint16_t bits) { return (~bits & 0x7c00) == 0; }
HEED_DEVICE constexpr bool IsNotFinite(BFloat16, uint16_t bits) { return (~bits & 0x7f80) == 0; }
HEED_DEVICE constexpr bool IsNotFinite(Float8E4M3, uint16_t bits) { return (~bits & 0x7f) == 0; }

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_FINITE_H_
