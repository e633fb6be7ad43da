// Launches of the kernel of single queries (decode_kernel.h). Only in builds with CUDA.
#ifndef HEED_SRC_CUDA_DECODE_LAUNCH_H_
#define HEED_SRC_CUDA_DECODE_LAUNCH_H_

#include "src/cuda/attention_params.h"
#include "src/cuda/plan.h"
#include "src/cuda/runtime.h"

namespace heed::cuda {

// Runs a plan whose kernel is TileKernel::kDecoding.
void LaunchDecoding(const AttentionPlan& plan, const AttentionParams& params, Stream stream);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_DECODE_LAUNCH_H_
