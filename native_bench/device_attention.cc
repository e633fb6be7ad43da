#include "native_bench/device_attention.h"

#include <cmath>

namespace heed::bench {

bool IsDeviceAttention(const Case& c) { return c.mechanism == "scaled_dot_product"; }

SocketArrays SocketArraysOf(const Case& c) {
  SocketArrays arrays;
  if (c.alibi) arrays.alibi_slopes = AlibiSlopes(c.heads.num_heads);
  for (int64_t h = 0; c.sinks && h < c.heads.num_heads; ++h) {
    const double all_keys = std::log(static_cast<double>(c.lengths.kv_len)) + 0.5;
    arrays.sinks.push_back(static_cast<float>(all_keys + 0.5 * static_cast<double>(h % 4)));
  }
  if (c.key_length.has_value()) {
    arrays.key_lengths.assign(static_cast<size_t>(c.batch), static_cast<int32_t>(*c.key_length));
  }
  return arrays;
}

AttentionOptions AttentionOptionsOf(const Case& c, const SocketArrays& arrays) {
  AttentionOptions options;
  options.softcap = c.softcap;
  options.alibi_slopes = arrays.alibi_slopes;
  options.causal = c.mask == Mask::kCausal;
  if (c.window_left.has_value()) options.window = Window{.left = c.window_left, .right = {}};
  options.query_offset = QueryOffset::End();
  options.key_lengths = arrays.key_lengths;
  options.sinks = arrays.sinks;
  return options;
}

std::vector<NamedParam> AttentionParamsOf(const Case& c, int64_t query) {
  std::vector<NamedParam> params = {{"query_offset", static_cast<double>(c.PositionOf(query))}};
  if (c.mask == Mask::kCausal) params.push_back({"causal", true});
  if (c.window_left.has_value()) {
    params.push_back({"window_left", static_cast<double>(*c.window_left)});
  }
  if (c.softcap.has_value()) params.push_back({"softcap", *c.softcap});
  return params;
}

}  // namespace heed::bench
