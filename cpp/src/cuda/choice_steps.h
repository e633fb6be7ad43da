// Choices of keys as steps of the device. No CUDA here.
#ifndef HEED_SRC_CUDA_CHOICE_STEPS_H_
#define HEED_SRC_CUDA_CHOICE_STEPS_H_

#include <cstdint>
#include <functional>

#include "src/cuda/step_calls.h"

namespace heed::cuda {

// A block, or a count, beyond all tokens is one as large as they are.
int32_t AtMost(int64_t value, int64_t tokens);

struct Choice {
  int64_t kv_block = 1, most = 1;
  int64_t first_blocks = 0, local_blocks = 0;  // that are chosen whatever they score
  int64_t lists = 1, heads = 1;                // of scores, and query heads that share them
  int64_t scratch = 0;                         // numbers that the scores of a query need besides
};

// Queries [first, first + count), whose scores [batch, lists, count, blocks] are to be made.
struct ScoreRows {
  int64_t first, count;
  double *scores, *scratch;  // scratch [batch, lists, count, choice.scratch]
};

// What queries choose by their scores, which `score` makes for as many of them at a time as
// steps.ScoreBytes() hold, at least one.
SeenRules Chosen(ComposedSteps& steps, const AttentionProblem& p, const Choice& choice,
                 const std::function<void(const ScoreRows&)>& score);

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_CHOICE_STEPS_H_
