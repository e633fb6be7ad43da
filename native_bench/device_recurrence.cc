#include "native_bench/device_recurrence.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "heed/attention.h"

namespace heed::bench {
namespace {

constexpr std::array<std::string_view, 9> kRecurrences = {
    "linear",     "retention",        "lightning",  "mamba2", "gated_linear",
    "delta_rule", "gated_delta_rule", "kimi_delta", "rwkv7"};

// [1, batch, num_kv_heads, kv_len], as tensors of rank 3 are held, becomes [batch, num_kv_heads,
// kv_len, 1].
TensorView<const float> PerToken(const TensorView<const float>& view) {
  return {view.data,
          {view.shape[1], view.shape[2], view.shape[3], 1},
          {view.strides[1], view.strides[2], view.strides[3], 0}};
}

}  // namespace

bool IsDeviceRecurrence(const Case& c) {
  return std::find(kRecurrences.begin(), kRecurrences.end(), c.mechanism) != kRecurrences.end();
}

std::vector<float> HeadLogDecays(const Case& c) {
  std::vector<float> decays;
  if (c.mechanism == "lightning") {
    decays = AlibiSlopes(c.heads.num_kv_heads);
    for (float& decay : decays) decay = -decay;
  }
  if (c.mechanism == "retention") {
    for (int64_t h = 0; h < c.heads.num_kv_heads; ++h) {
      const double forgotten = std::exp2(-5.0 - static_cast<double>(h));
      decays.push_back(static_cast<float>(std::log1p(-forgotten)));
    }
  }
  return decays;
}

RecurrentOptions RecurrentOptionsOf(const Case& c, const RecurrenceInputs& inputs) {
  RecurrentOptions options;
  if (c.mechanism == "linear") {
    options.feature_map = FeatureMap::kEluPlusOne;
    options.normalize = true;
    options.causal = c.mask == Mask::kCausal;
  }
  const bool is_rwkv7 = c.mechanism == "rwkv7";
  if (c.mechanism == "linear" || c.mechanism == "lightning" || c.mechanism == "mamba2" ||
      is_rwkv7) {
    options.scale = 1;
  }
  if (inputs.head_log_decays != nullptr) {
    options.log_decay = {inputs.head_log_decays, {1, c.heads.num_kv_heads, 1, 1}, {0, 1, 0, 0}};
  }
  if (c.mechanism == "gated_linear" || c.mechanism == "kimi_delta" || is_rwkv7) {
    options.log_decay = inputs.tensor("channel_log_decay");
  }
  if (is_rwkv7) {
    options.erase_key = inputs.tensor("erase_key");
    options.erase_rate = inputs.tensor("erase_rate");
  }
  if (c.mechanism == "mamba2" || c.mechanism == "gated_delta_rule") {
    options.log_decay = PerToken(inputs.tensor("log_decay"));
  }
  const bool delta = c.mechanism == "delta_rule" || c.mechanism == "gated_delta_rule" ||
                     c.mechanism == "kimi_delta";
  if (delta) {
    options.feature_map = FeatureMap::kUnit;
    options.delta = true;
  }
  if (delta || c.mechanism == "mamba2") options.beta = PerToken(inputs.tensor("beta"));
  options.skip = inputs.skip;
  return options;
}

}  // namespace heed::bench
