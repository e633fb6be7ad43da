// The size of a launch. No CUDA here.
#ifndef HEED_SRC_CUDA_GRID_H_
#define HEED_SRC_CUDA_GRID_H_

#include <cstdint>
#include <limits>

#include "src/message.h"

namespace heed::cuda {

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
