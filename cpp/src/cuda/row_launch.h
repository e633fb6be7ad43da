// Launches of the row kernel. Only in builds with CUDA.
#ifndef HEED_SRC_CUDA_ROW_LAUNCH_H_
#define HEED_SRC_CUDA_ROW_LAUNCH_H_

#include "src/cuda/plan.h"
#include "src/cuda/runtime.h"

namespace heed::cuda {

// Runs a call that NeedsRows() (row_plan.h).
void LaunchRows(const DeviceProblem& call, const Device& device, Stream stream);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_ROW_LAUNCH_H_
