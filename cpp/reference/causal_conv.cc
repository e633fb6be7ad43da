// The short causal convolution: depthwise over time, with the tokens before the first one.
//
// Source: Gu and Dao 2023, arXiv:2312.00752: the filter before the state space model.
#include <cmath>
#include <vector>

#include "recurrent.h"

namespace heed::reference::causal_conv {
namespace {

Array ReadShaped(const Request& request, std::string_view name, int rank, const Extents& shape) {
  const std::optional<Array> given = ReadFloats(request, name, rank);
  if (given && given->shape != shape) {
    throw Error(ErrorCode::kShape, std::string(name) + " has another shape than signal needs");
  }
  return given.value_or(Array{});
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Array x = *ReadFloats(request, "signal", 3);
  const Array weight = *ReadFloats(request, "conv_weight", 2);
  const int64_t batch = x.shape[1], len = x.shape[2], channels = x.shape[3];
  const int64_t width = weight.shape[3], tail = width - 1;
  if (width < 1 || width > 64)
    throw Error(ErrorCode::kShape, "conv_weight has no or too many taps");
  if (weight.shape[2] != channels) {
    throw Error(ErrorCode::kShape, "conv_weight must have a filter per channel");
  }
  const Array bias = ReadShaped(request, "conv_bias", 1, {1, 1, 1, channels});
  const Array before = ReadShaped(request, "conv_state", 3, {1, batch, tail, channels});
  const bool silu =
      ReadWord(request, "conv_activation", {"none", "silu"}).value_or("none") == "silu";
  const std::vector<int64_t> lengths = ReadKeyLengths(request, batch, len);
  // Token t >= -tail.
  const auto token = [&](int64_t b, int64_t t, int64_t c) {
    if (t >= 0) return x(0, b, t, c);
    return FindInput(request, "conv_state") == nullptr ? 0.0 : before(0, b, t + tail, c);
  };
  Result output = {"output", 3, {batch, len, channels, 1}, {}};
  Result state = {"state", 3, {batch, tail, channels, 1}, {}};
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t t = 0; t < len; ++t) {
      for (int64_t c = 0; c < channels; ++c) {
        double sum = FindInput(request, "conv_bias") == nullptr ? 0.0 : bias(0, 0, 0, c);
        for (int64_t j = 0; j < width && t < lengths[b]; ++j) {
          sum += weight(0, 0, c, j) * token(b, t - tail + j, c);
        }
        if (silu) sum /= 1 + std::exp(-sum);
        output.values.push_back(t < lengths[b] ? sum : 0);
      }
    }
    for (int64_t r = 0; r < tail; ++r) {
      for (int64_t c = 0; c < channels; ++c) {
        state.values.push_back(token(b, lengths[b] - tail + r, c));
      }
    }
  }
  std::vector<Result> results = {output};
  if (ReadFlag(request, "return_state")) results.push_back(state);
  return results;
}

}  // namespace heed::reference::causal_conv
