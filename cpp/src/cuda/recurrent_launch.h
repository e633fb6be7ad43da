// The launches of recurrent calls. Only in builds with CUDA.
#ifndef HEED_SRC_CUDA_RECURRENT_LAUNCH_H_
#define HEED_SRC_CUDA_RECURRENT_LAUNCH_H_

#include <cstdint>

#include "heed/cuda.h"
#include "src/cuda/chunk_plan.h"
#include "src/cuda/gated_chunk_plan.h"
#include "src/recurrent/problem.h"

namespace heed::cuda {

// A checked call of float32 tensors, token by token.
void LaunchTokens(const RecurrentProblem& problem, Stream stream);

// A checked call that TakesGatedChunks().
void LaunchGatedChunks(const StoredRecurrentProblem& call, Stream stream,
                       int64_t max_prepared_bytes = kMaxPreparedBytes);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_RECURRENT_LAUNCH_H_
