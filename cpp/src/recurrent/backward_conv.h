// What the way back through the causal convolution works on. Plain data, no SIMD.
#ifndef HEED_SRC_RECURRENT_BACKWARD_CONV_H_
#define HEED_SRC_RECURRENT_BACKWARD_CONV_H_

#include <span>

#include "src/recurrent/causal_conv_problem.h"

namespace heed {

struct ConvBackward {
  ConvProblem p;
  TensorView<const float> d_out, d_final_state;  // the second absent = 0
  TensorView<float> d_x, d_weight, d_initial_state;
  std::span<float> d_bias;
};

}  // namespace heed

#endif  // HEED_SRC_RECURRENT_BACKWARD_CONV_H_
