// The way back through a transformer block.
#ifndef HEED_SRC_LAYERS_BACKWARD_BLOCK_H_
#define HEED_SRC_LAYERS_BACKWARD_BLOCK_H_

#include <span>

#include "src/layers/backward_multi_head.h"

namespace heed {

// Where the gradients of a feed-forward network go, contiguous and shaped as what they are of;
// those without a value are not computed.
struct FeedForwardGradients {
  TensorView<float> d_w_up{}, d_w_gate{}, d_w_down{};
  std::span<float> d_b_up{}, d_b_gate{}, d_b_down{};
};

// The feed-forward network of a block, forward and back; rows are [batch, 1, len, dim].
class FeedForwardPass {
 public:
  // Arguments outlive it. Throws Error(kMemory).
  FeedForwardPass(const TensorView<const float>& x, const TransformerBlockWeights& weights,
                  Activation activation, ThreadPool& pool);

  void WriteOutput(const TensorView<float>& output) const;
  void Backward(const TensorView<const float>& d_output, const TensorView<float>& d_x,
                const FeedForwardGradients& to);

 private:
  // What arrives at the hidden rows becomes what arrives at the rows of w_up and w_gate.
  void HiddenBackward();

  const TensorView<const float> x_;
  const TransformerBlockWeights& w_;
  const Activation activation_;
  ThreadPool& pool_;
  const bool gated_;
  OwnedHeads up_, gate_, activated_, hidden_;  // the last two are one without a gate
  OwnedHeads d_up_, d_gate_;
};

struct TransformerBlockGradients {
  TensorView<float> d_x{};
  MultiHeadGradients attention{};
  FeedForwardGradients feed_forward{};
  std::span<float> d_norm1_weight{}, d_norm1_bias{}, d_norm2_weight{}, d_norm2_bias{};
};

// Gradients of TransformerBlock() from d_output, shaped as x. Runs forward again. Arguments are
// validated. Throws Error(kMemory).
void TransformerBlockBackward(const TensorView<const float>& x,
                              const TransformerBlockWeights& weights,
                              const TransformerBlockOptions& options,
                              const TensorView<const float>& d_output,
                              const TransformerBlockGradients& to, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_LAYERS_BACKWARD_BLOCK_H_
