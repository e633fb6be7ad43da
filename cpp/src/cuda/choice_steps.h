// Choices of keys as steps of the device. No CUDA here.
#ifndef HEED_SRC_CUDA_CHOICE_STEPS_H_
#define HEED_SRC_CUDA_CHOICE_STEPS_H_

#include <cstdint>

#include "src/cuda/step_calls.h"

namespace heed::cuda {

// A block, or a count, beyond all tokens is one as large as they are.
int32_t AtMost(int64_t value, int64_t tokens);

struct Choice {
  int64_t kv_block = 1, most = 1;
  int64_t first_blocks = 0, local_blocks = 0;  // that are chosen whatever they score
  int64_t lists = 1, heads = 1;                // of scores, and of the keep matrix
};

// The keep matrix [batch, heads, q_len, kv_len] of what queries choose by scores
// [batch, lists, q_len, blocks].
TensorView<const uint8_t> Chosen(ComposedSteps& steps, const AttentionProblem& p,
                                 const Choice& choice, const double* scores);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_CHOICE_STEPS_H_
