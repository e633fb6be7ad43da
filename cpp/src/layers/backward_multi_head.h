// The way back through multi-head attention.
#ifndef HEED_SRC_LAYERS_BACKWARD_MULTI_HEAD_H_
#define HEED_SRC_LAYERS_BACKWARD_MULTI_HEAD_H_

#include <span>

#include "heed/gradient.h"
#include "heed/layers.h"
#include "src/layers/multi_head.h"
#include "src/parallel/owned_heads.h"

namespace heed {

// Where gradients go, contiguous and shaped as what they are of; those without a value are not
// computed.
struct MultiHeadGradients {
  TensorView<float> d_query{}, d_key{}, d_value{};
  TensorView<float> d_w_q{}, d_w_k{}, d_w_v{}, d_w_o{};
  // Read: what arrives at the projected queries beside the attention, [batch, 1, q_len, num_heads *
  // head_dim]. Not with head_mask.
  TensorView<const float> d_projected_query{};
  std::span<float> d_b_q{}, d_b_k{}, d_b_v{}, d_b_o{}, d_bias_k{}, d_bias_v{}, d_head_mask{};
  // Of the options between the projections; d_lse is read, with the extra keys in it.
  AttentionGradients attention{};
};

// One call of MultiHead(), forward and back. It keeps the projected rows, the heads and their lse
// in between. Arguments are validated and outlive it. Heads that head_mask prunes are left out:
// they get and give exactly 0, whatever is in them.
class MultiHeadPass {
 public:
  // Runs forward up to the heads. Throws Error(kMemory).
  MultiHeadPass(const MultiHeadShape& shape, const TensorView<const float>& query,
                const TensorView<const float>& key, const TensorView<const float>& value,
                const MultiHeadWeights& weights, const MultiHeadOptions& options, ThreadPool& pool);

  // [batch, 1, q_len, out_dim]: what MultiHead() gives.
  void WriteOutput(const TensorView<float>& output) const;

  // [batch, 1, q_len, num_heads * head_dim].
  TensorView<const float> ProjectedQuery() const { return RowsOf(projected_.q); }

  // From d_output, shaped as the output. Once.
  void Backward(const TensorView<const float>& d_output, const MultiHeadGradients& to);

 private:
  // [batch, 1, q_len, num_heads * head_dim_v], times head_mask.
  TensorView<const float> MaskedRows() const;
  void HeadsBackward(const TensorView<const float>& d_output, const MultiHeadGradients& to);
  void MaskBackward(std::span<float> d_head_mask);
  void FindLeftOut(bool has_d_lse);
  void ClearLeftOut();
  bool IsLeftOut(int64_t head) const { return left_out_[static_cast<size_t>(head)] != 0; }
  bool IsGroupLeftOut(int64_t kv_head) const;
  void AttentionGradientsOf(const AttentionGradients& to);
  OwnedHeads ClearedWeight(const TensorView<const float>& w,
                           bool (MultiHeadPass::*is_left_out)(int64_t) const) const;
  void AddToQueries(const TensorView<const float>& d_rows) const;
  void ProjectionsBackward(const MultiHeadGradients& to) const;

  const MultiHeadShape s_;
  const TensorView<const float> query_, key_, value_;
  const MultiHeadWeights& w_;
  const MultiHeadOptions& o_;
  ThreadPool& pool_;
  ProjectedHeads projected_;
  OwnedHeads heads_, masked_, lse_;
  OwnedHeads d_heads_, d_q_, d_k_, d_v_;
  ScratchVector<char> left_out_;  // of every head
};

}  // namespace heed

#endif  // HEED_SRC_LAYERS_BACKWARD_MULTI_HEAD_H_
