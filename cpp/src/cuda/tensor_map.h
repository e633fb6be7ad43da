// A tile map in the form that TMA reads. Only in builds with CUDA.
#ifndef HEED_SRC_CUDA_TENSOR_MAP_H_
#define HEED_SRC_CUDA_TENSOR_MAP_H_

#include <cuda.h>

#include "src/cuda/hopper_layout.h"

namespace heed::cuda {

// Throws Error(kUnsupported) where the driver refuses.
CUtensorMap Encode(const TileMap& map);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_TENSOR_MAP_H_
