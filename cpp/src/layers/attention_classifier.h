// The classifier after validation.
#ifndef HEED_SRC_LAYERS_ATTENTION_CLASSIFIER_H_
#define HEED_SRC_LAYERS_ATTENTION_CLASSIFIER_H_

#include "heed/layers.h"

namespace heed {

// Checks everything but the output; throws Error.
void ValidateAttentionClassifier(TensorView<const int32_t> tokens,
                                 const AttentionClassifierWeights& weights,
                                 const AttentionClassifierOptions& options);

}  // namespace heed

#endif  // HEED_SRC_LAYERS_ATTENTION_CLASSIFIER_H_
