// Recurrent attention token by token, with emulated thread blocks.
#ifndef HEED_TESTS_CUDA_EMULATED_TOKENS_H_
#define HEED_TESTS_CUDA_EMULATED_TOKENS_H_

#include "src/recurrent/problem.h"

namespace heed::testing {

// A checked call of float32 tensors.
void RunTokens(const RecurrentProblem& problem);

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_EMULATED_TOKENS_H_
