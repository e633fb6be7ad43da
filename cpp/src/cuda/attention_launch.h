// A checked call of attention, launched. Only in builds with CUDA.
#ifndef HEED_SRC_CUDA_ATTENTION_LAUNCH_H_
#define HEED_SRC_CUDA_ATTENTION_LAUNCH_H_

#include "heed/cuda.h"
#include "src/cuda/plan.h"

namespace heed::cuda {

// Runs the call by the kernel that takes it.
void LaunchAttention(const DeviceProblem& call, Stream stream);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_ATTENTION_LAUNCH_H_
