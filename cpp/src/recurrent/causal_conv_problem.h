// What the causal convolution works on: the caller's arguments after validation.
#ifndef HEED_SRC_RECURRENT_CAUSAL_CONV_PROBLEM_H_
#define HEED_SRC_RECURRENT_CAUSAL_CONV_PROBLEM_H_

#include "heed/causal_conv.h"
#include "src/request_reader.h"

namespace heed {

inline constexpr char kConvStateMeaning[] = "[batch, num_heads, width - 1, dim]";

// Tokens of a task.
inline constexpr size_t kConvBlock = 64;

struct ConvProblem {
  TensorView<const float> x, weight;  // weight has stride 0 where heads share filters
  std::span<const float> bias;
  std::span<const int32_t> lengths;
  TensorView<const float> initial_state;
  ConvActivation activation = ConvActivation::kNone;
  CausalConvOutputs outputs;
  int64_t batch = 0, num_heads = 0, len = 0, dim = 0, width = 0;
  int64_t filters = 1;  // heads of weight

  int64_t Length(int64_t b) const {
    return lengths.empty() ? len : lengths[static_cast<size_t>(b)];
  }
  int64_t NumBlocks() const {
    return (len + static_cast<int64_t>(kConvBlock) - 1) / static_cast<int64_t>(kConvBlock);
  }
  float Bias(int64_t h, int64_t c) const {
    return bias.empty() ? 0.0f : bias[static_cast<size_t>((filters == 1 ? 0 : h) * dim + c)];
  }
  // Token t >= -(width - 1); nullptr before the first one without a state.
  const float* Row(int64_t b, int64_t h, int64_t t) const {
    if (t >= 0) return &x(b, h, t, 0);
    return initial_state.has_value() ? &initial_state(b, h, t + width - 1, 0) : nullptr;
  }
};

// Throws Error.
ConvProblem ValidateConv(const TensorView<const float>& x, const TensorView<const float>& weight,
                         const CausalConvOptions& options);

// Extents of the state.
Extents StateShape(const ConvProblem& p);

// A call read from a request, with one head for all channels.
struct ConvRequest {
  TensorView<const float> x, weight;
  CausalConvOptions options;
  bool return_state = false;
};
ConvRequest ReadConv(const RequestReader& reader);

}  // namespace heed

#endif  // HEED_SRC_RECURRENT_CAUSAL_CONV_PROBLEM_H_
