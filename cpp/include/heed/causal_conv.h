// The short causal convolution that recurrent models put before their queries, keys and values:
// depthwise, over time, with a state that carries over.
#ifndef HEED_CAUSAL_CONV_H_
#define HEED_CAUSAL_CONV_H_

#include <cstdint>
#include <span>

#include "heed/tensor.h"
#include "heed/thread_pool.h"

namespace heed {

// Largest error of a CausalConv() output against float64, relative to the sum of the absolute
// values of the terms that were added. Docs and tests read it.
inline constexpr double kCausalConvMaxError = 4e-6;

// Taps of a filter, at most.
inline constexpr int64_t kMaxConvWidth = 64;

enum class ConvActivation {
  kNone,  // x
  kSilu,  // x / (1 + exp(-x)), also called swish
};

// Filters in motion, width 3:
//
//   initial_state | x                      output 0 = w0 s0 + w1 s1 + w2 x0
//          s0 s1  | x0 x1 x2 x3            output 1 = w0 s1 + w1 x0 + w2 x1
//                         ^^^^^            output 2 = w0 x0 + w1 x1 + w2 x2
//                         final_state
struct CausalConvOptions {
  // Added to every output: one value per filter, in the order of weight. Empty = zeros.
  std::span<const float> bias;

  ConvActivation activation = ConvActivation::kNone;

  // Tokens at or beyond the length do not exist: never read, outputs 0. Empty = len, else [batch]
  // values in [0, len].
  std::span<const int32_t> lengths;

  // The width - 1 tokens before the first, [batch, num_heads, width - 1, dim], last dimension
  // contiguous. Absent = zeros.
  TensorView<const float> initial_state;
};

// Where results go.
struct CausalConvOutputs {
  // [batch, num_heads, len, dim], any strides with a contiguous last dimension.
  TensorView<float> output{};
  // The last width - 1 tokens, shaped as initial_state, whose memory it may be. Absent = not
  // wanted.
  TensorView<float> final_state{};
};

// Computes out[t, c] = activation(bias[c] + sum_j weight[c, j] x[t - (width - 1) + j, c]), with
// initial_state where the index is negative: the last tap meets the token itself.
//
// Shapes   x [batch, num_heads, len, dim], last dimension contiguous; without heads num_heads is 1.
//          weight [1, 1 or num_heads, dim, width], any strides: PyTorch's [channels, 1, width] is a
//          view of it. width in [1, kMaxConvWidth].
// Errors   Error(kShape | kRange | kOption) before anything is written. Results may not overlap x.
// Accuracy kCausalConvMaxError. What is not finite reaches width tokens of its own channel.
// Cost     width multiply-adds per element. Allocates nothing: a call with one token is the step of
//          decoding.
// Threads  `pool` or the default pool, by blocks of 64 tokens. Same bits for any number of threads,
//          and wherever a sequence is cut.
// Source   Gu and Dao 2023, Mamba, arXiv:2312.00752; before queries and keys: Yang et al. 2024,
//          arXiv:2406.06484.
void CausalConv(TensorView<const float> x, TensorView<const float> weight,
                const CausalConvOptions& options, const CausalConvOutputs& outputs,
                ThreadPool* pool = nullptr);

}  // namespace heed

#endif  // HEED_CAUSAL_CONV_H_
