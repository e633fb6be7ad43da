// Which head and row a block of a plain kernel works on.
#ifndef HEED_SRC_CUDA_HEAD_PLACE_H_
#define HEED_SRC_CUDA_HEAD_PLACE_H_

#include <cstdint>

#include "src/cuda/device.h"

namespace heed::cuda {

// Which head a block of `per_head` blocks a head belongs to, and which of them it is.
struct HeadPlace {
  int b, h, within;

  HEED_DEVICE HeadPlace(int64_t index, int64_t per_head, int heads)
      : within(static_cast<int>(index % per_head)) {
    const int64_t head = index / per_head;
    b = static_cast<int>(head / heads);
    h = static_cast<int>(head % heads);
  }
};

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HEAD_PLACE_H_
