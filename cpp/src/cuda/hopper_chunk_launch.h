// Launches of the kernel for chunks on Hopper, which hopper_chunks.cu has. Only in builds with
// CUDA.
#ifndef HEED_SRC_CUDA_HOPPER_CHUNK_LAUNCH_H_
#define HEED_SRC_CUDA_HOPPER_CHUNK_LAUNCH_H_

#include "src/cuda/hopper_chunk_plan.h"
#include "src/cuda/runtime.h"

namespace heed::cuda {

// A call that TakesHopperChunks().
void LaunchHopperChunks(const StoredRecurrentProblem& call, Stream stream);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_CHUNK_LAUNCH_H_
