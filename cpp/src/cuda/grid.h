// The size of a launch, and of what it is made of. No CUDA here.
#ifndef HEED_SRC_CUDA_GRID_H_
#define HEED_SRC_CUDA_GRID_H_

#include <cstdint>
#include <limits>

#include "src/message.h"

namespace heed::cuda {

// Shared memory that a multiprocessor keeps for each block besides the block's own, and what there
// is of it on one of Hopper.
inline constexpr int64_t kReservedBytes = 1024;
inline constexpr int64_t kHopperBytes = 228 * 1024;

// Whether `blocks` blocks of `bytes` bytes of shared memory each share a multiprocessor of Hopper.
constexpr bool ShareOfHopper(int64_t blocks, int64_t bytes) {
  return blocks * (bytes + kReservedBytes) <= kHopperBytes;
}

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Throws Error(kUnsupported) for more blocks than a grid may have.
inline unsigned GridOf(int64_t blocks) {
  if (blocks > std::numeric_limits<int32_t>::max()) {
    Fail(ErrorCode::kUnsupported, "the call needs {} thread blocks; a grid has at most 2^31 - 1",
         {blocks});
  }
  return static_cast<unsigned>(blocks);
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_GRID_H_
