// Arguments of layers whose weights lie in places.
#ifndef HEED_TESTS_ALIASES_LAYER_PLACES_H_
#define HEED_TESTS_ALIASES_LAYER_PLACES_H_

#include <string>

#include "heed/layers.h"
#include "places.h"

namespace heed::testing {

inline constexpr int64_t kBatch = 1, kHeads = 2, kLen = 3, kDim = 4, kWidth = 8, kFeedForward = 6;

inline TensorView<const float> PlaceRows(Places& at, const std::string& name) {
  return at.In(name, {kBatch, 1, kLen, kWidth});
}

inline AttentionOptions PlaceOptions(Places& at) {
  AttentionOptions options;
  options.bias = at.In("bias", {1, 1, kLen, kLen});
  options.keep = at.In<uint8_t>("keep", {1, 1, kLen, kLen});
  options.alibi_slopes = at.Values("alibi_slopes", kHeads);
  options.key_lengths = at.Numbers("key_lengths", {2});
  return options;
}

// kWidth = kHeads * kDim. `owner` is "first." where a call has two of a kind.
inline MultiHeadWeights PlaceWeights(Places& at, const std::string& owner = "") {
  MultiHeadWeights w;
  w.w_q = at.In(owner + "w_q", {1, kHeads, kDim, kWidth});
  w.w_k = at.In(owner + "w_k", {1, kHeads, kDim, kWidth});
  w.w_v = at.In(owner + "w_v", {1, kHeads, kDim, kWidth});
  w.w_o = at.In(owner + "w_o", {1, kWidth, kHeads, kDim});
  w.b_q = at.Values(owner + "b_q", kWidth);
  w.b_k = at.Values(owner + "b_k", kWidth);
  w.b_v = at.Values(owner + "b_v", kWidth);
  w.b_o = at.Values(owner + "b_o", kWidth);
  w.bias_k = at.Values(owner + "bias_k", kWidth);
  w.bias_v = at.Values(owner + "bias_v", kWidth);
  return w;
}

inline MultiHeadOptions PlaceLayerOptions(Places& at) {
  return {PlaceOptions(at), false, at.Values("head_mask", kHeads)};
}

}  // namespace heed::testing

#endif  // HEED_TESTS_ALIASES_LAYER_PLACES_H_
