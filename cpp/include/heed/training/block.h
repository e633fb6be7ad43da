// A pre-norm transformer block that is trained.
#ifndef HEED_TRAINING_BLOCK_H_
#define HEED_TRAINING_BLOCK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "heed/thread_pool.h"
#include "heed/training/attention_layer.h"
#include "heed/training/layers.h"
#include "heed/training/parameter.h"

namespace heed::training {

struct BlockOptions {
  AttentionLayerOptions attention;
  // Attention to another sequence, after that to its own; absent = none.
  std::optional<AttentionLayerOptions> cross_attention{};
  FeedForwardOptions feed_forward;
  Norm norm = Norm::kRms;
  double epsilon = 1e-5;
};

// a = x + attention(norm(x)),  b = a + cross_attention(norm(a), context),  y = b + mlp(norm(b)).
// Each norm has weights of its own. Names under `<name>` are those of Llama checkpoints:
// input_layernorm, self_attn, cross_layernorm, cross_attn, post_attention_layernorm, mlp.
// Source: Xiong et al. 2020, arXiv:2002.04745.
class Block {
 public:
  // Throws Error(kShape) unless all parts have the same embed_dim, and what they throw.
  Block(ParameterSet& parameters, const std::string& name, const BlockOptions& options);
  Block(const Block&) = delete;  // refers to its own rows
  Block& operator=(const Block&) = delete;

  // x [batch * len, embed_dim], len = shape.q_len = shape.kv_len.
  const Matrix& Forward(const Matrix& x, const SequenceShape& shape, ThreadPool* pool = nullptr);
  // With a context, [batch * context_len, embed_dim]. Throws Error(kOption) for a block without
  // cross-attention, and the other one for a block with it.
  const Matrix& Forward(const Matrix& x, const SequenceShape& shape, const Matrix& context,
                        int64_t context_len, ThreadPool* pool = nullptr);

  const Matrix& Backward(const Matrix& d_y, ThreadPool* pool = nullptr);
  // The gradient of the context.
  const Matrix& context_gradient() const { return cross_->attention.context_gradient(); }

  const AttentionLayer& attention() const { return attention_; }
  // nullptr where there is none.
  const AttentionLayer* cross_attention() const { return cross_ ? &cross_->attention : nullptr; }

 private:
  struct Cross {
    Cross(ParameterSet& parameters, const std::string& name, const BlockOptions& options);
    NormLayer norm;
    AttentionLayer attention;
  };

  const Matrix& Finish(const Matrix& x, ThreadPool* pool);

  NormLayer norm1_, norm2_;
  AttentionLayer attention_;
  std::optional<Cross> cross_;
  FeedForward mlp_;
  bool has_forward_ = false;  // the last one came to its end
  Matrix attended_, crossed_, y_, d_crossed_, d_attended_, d_x_;
};

}  // namespace heed::training

#endif  // HEED_TRAINING_BLOCK_H_
