// What can be wrong with the options of an attention layer is found here, before anything is
// allocated for it.
#ifndef HEED_SRC_TRAINING_ATTENTION_OPTIONS_H_
#define HEED_SRC_TRAINING_ATTENTION_OPTIONS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "heed/training/attention_layer.h"

namespace heed::training {

// The options with num_kv_heads filled in. Throws what AttentionLayer's constructor throws.
AttentionLayerOptions CheckedAttention(AttentionLayerOptions options);

// Throws Error(kRange) for a base of rotary positions that is not finite and above 1.
void CheckRopeBase(double base);

// The shape of an input that is a parameter of the layer.
std::vector<int64_t> LearnedShape(std::string_view input, const AttentionLayerOptions& options);

}  // namespace heed::training

#endif  // HEED_SRC_TRAINING_ATTENTION_OPTIONS_H_
