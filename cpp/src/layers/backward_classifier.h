// The way back through the attention classifier.
#ifndef HEED_SRC_LAYERS_BACKWARD_CLASSIFIER_H_
#define HEED_SRC_LAYERS_BACKWARD_CLASSIFIER_H_

#include <span>

#include "src/layers/backward_multi_head.h"

namespace heed {

// Where gradients go, contiguous and shaped as what they are of; those without a value are not
// computed. Tokens have none.
struct AttentionClassifierGradients {
  TensorView<float> d_embedding{}, d_position_table{}, d_w_class{};
  std::span<float> d_b_class{}, d_pool_query{};
  MultiHeadGradients attention{};
};

// Gradients of AttentionClassifier() from d_output, [1, 1, batch, num_classes]. Runs forward again.
// Arguments are validated. Throws Error(kMemory).
void AttentionClassifierBackward(const TensorView<const int32_t>& tokens,
                                 const AttentionClassifierWeights& weights,
                                 const AttentionClassifierOptions& options,
                                 const TensorView<const float>& d_output,
                                 const AttentionClassifierGradients& to, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_LAYERS_BACKWARD_CLASSIFIER_H_
