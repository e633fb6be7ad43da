// The kernel of a recurrent call: the same choice for a GPU and for the emulated blocks of the
// tests.
#ifndef HEED_SRC_CUDA_RECURRENT_CHOICE_H_
#define HEED_SRC_CUDA_RECURRENT_CHOICE_H_

#include <type_traits>

#include "src/cuda/learning_kernel.h"
#include "src/cuda/level_kernel.h"
#include "src/cuda/random_kernel.h"
#include "src/cuda/recurrent_kernel.h"
#include "src/cuda/recurrent_plan.h"

namespace heed::cuda {

template <class Block, int kLanes, class Body>
void WithFormOf(RecurrentForm form, const Body& body) {
  if (form == RecurrentForm::kRandom) {
    return body(std::type_identity<RandomKernel<Block, kLanes>>());
  }
  if (form == RecurrentForm::kLevels) {
    return body(std::type_identity<LevelKernel<Block, kLanes>>());
  }
  body(std::type_identity<RecurrentKernel<Block, kLanes>>());
}

// Calls body(std::type_identity<Kernel>()).
template <class Block, class Body>
void WithRecurrentKernel(const RecurrentPlan& plan, const Body& body) {
  if (plan.form() == RecurrentForm::kLearning) {
    return body(std::type_identity<LearningKernel<Block>>());
  }
  if (plan.lanes() == 4) return WithFormOf<Block, 4>(plan.form(), body);
  if (plan.lanes() == 8) return WithFormOf<Block, 8>(plan.form(), body);
  WithFormOf<Block, 16>(plan.form(), body);
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_RECURRENT_CHOICE_H_
