// The launches of a recurrent call of float32 tensors. Only in builds with CUDA.
#ifndef HEED_SRC_CUDA_RECURRENT_LAUNCH_H_
#define HEED_SRC_CUDA_RECURRENT_LAUNCH_H_

#include "heed/cuda.h"
#include "src/recurrent/problem.h"

namespace heed::cuda {

// A checked call, token by token.
void LaunchTokens(const RecurrentProblem& problem, Stream stream);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_RECURRENT_LAUNCH_H_
