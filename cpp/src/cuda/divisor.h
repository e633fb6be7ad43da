// Division by a number that the host knows and the compiler does not, as a multiplication and a
// shift: a GPU divides integers in some twenty instructions, of which each waits for the one
// before.
#ifndef HEED_SRC_CUDA_DIVISOR_H_
#define HEED_SRC_CUDA_DIVISOR_H_

#include <bit>
#include <cstdint>

#include "src/cuda/device.h"

namespace heed::cuda {

// `divisor` is 1 to 2^31 - 1, dividends are 0 to 2^31 - 1 (Granlund and Montgomery 1994, "Division
// by invariant integers using multiplication", theorem 4.2). With s the least for which d <= 2^s,
// and m = ceil(2^(31 + s) / d), which has 32 bits, the floor of n m / 2^(31 + s) is that of n / d:
// m is less than 1 too large by d, which adds n / 2^(31 + s) < 1 / d.
struct Divisor {
  int32_t divisor = 1;
  uint32_t multiplier = 1u << 31;
  int32_t shift = 0;

  Divisor() = default;
  explicit constexpr Divisor(int64_t d)
      : divisor(static_cast<int32_t>(d)),
        shift(static_cast<int32_t>(std::bit_width(static_cast<uint64_t>(d) - 1))) {
    const uint64_t power = uint64_t{1} << (31 + shift);
    multiplier =
        static_cast<uint32_t>((power + static_cast<uint64_t>(d) - 1) / static_cast<uint64_t>(d));
  }

  HEED_DEVICE constexpr int32_t Quotient(int32_t n) const {
    const uint64_t twice = static_cast<uint64_t>(static_cast<uint32_t>(n) * 2u);
    return static_cast<int32_t>(static_cast<uint32_t>(twice * multiplier >> 32) >> shift);
  }
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_DIVISOR_H_
