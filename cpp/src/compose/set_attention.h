// Set and Perceiver blocks after validation.
#ifndef HEED_SRC_COMPOSE_SET_ATTENTION_H_
#define HEED_SRC_COMPOSE_SET_ATTENTION_H_

#include "heed/set_attention.h"

namespace heed {

// Rows [1 or batch, 1, len, dim] as every batch entry sees them.
TensorView<const float> RowsOfBatch(TensorView<const float> rows, int64_t batch);

// Check everything but the output; throw Error. `x` and `latents` have the batch of the other.
void ValidateSetBlock(const TensorView<const float>& x, const TensorView<const float>& y,
                      const SetBlockWeights& weights, const SetBlockOptions& options);
void ValidatePerceiver(const TensorView<const float>& latents, const TensorView<const float>& input,
                       const PerceiverWeights& weights, const PerceiverOptions& options);

// The options of the second block of an induced set.
SetBlockOptions OptionsOfSecond(const SetBlockOptions& options);

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_SET_ATTENTION_H_
