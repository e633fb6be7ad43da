#include "src/layers/backward_block.h"

#include <optional>

#include "heed/linear.h"
#include "src/layers/backward_rows.h"
#include "src/layers/transformer_block.h"
#include "src/linear/backward_linear.h"
#include "src/parallel/pieces.h"
#include "src/rows/activation.h"
#include "src/rows/backward_activation.h"
#include "src/rows/backward_norm.h"

namespace heed {
namespace {

// to = a * b; a factor of exactly 0 takes nothing from the other.
void Multiply(const OwnedHeads& a, const OwnedHeads& b, const OwnedHeads& to, ThreadPool& pool) {
  const float* left = a.data();
  const float* right = b.data();
  ForEachPiece(to.view.size(), kTaskElements, &pool, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t n = begin; n < end; ++n) to.data()[n] = left[n] == 0 ? 0 : left[n] * right[n];
  });
}

class BlockPass {
 public:
  BlockPass(const TensorView<const float>& x, const TransformerBlockWeights& w,
            const TransformerBlockOptions& o, ThreadPool& pool)
      : w_(w),
        o_(o),
        pool_(pool),
        pre_(o.order == NormOrder::kPre),
        x_(CopiedRows(x, pool)),
        first_(pre_ ? Normed(x_, true) : OwnedHeads()),
        attention_(ValidateMultiHead(x, x, x, w.attention, o.attention, false), Input(), Input(),
                   Input(), w.attention, o.attention, pool),
        attended_(NewRows(x, x.shape[3])) {
    attention_.WriteOutput(attended_.view);
    AddRows(x_, attended_, pool_);
    second_ = Normed(attended_, !pre_);
    feed_forward_.emplace(second_.view, w_, o_.activation, pool_);
    if (pre_) return;
    last_ = NewRows(x, x.shape[3]);
    feed_forward_->WriteOutput(last_.view);
    AddRows(second_, last_, pool_);
  }

  void Backward(const TensorView<const float>& d_output, const TransformerBlockGradients& to) {
    OwnedHeads d_last = CopiedRows(d_output, pool_);
    if (!pre_) d_last = NormBack(last_, d_last, false, to);
    OwnedHeads d_second = NewRows(d_last.view, d_last.view.shape[3]);
    feed_forward_->Backward(d_last.view, d_second.view, to.feed_forward);
    if (pre_) d_second = NormBack(attended_, d_second, false, to);
    AddRows(d_last, d_second, pool_);
    if (!pre_) d_second = NormBack(attended_, d_second, true, to);
    OwnedHeads d_first = NewRows(d_second.view, d_second.view.shape[3]);
    SelfAttentionBackward(attention_, d_second.view, to.attention, d_first, pool_);
    if (pre_) d_first = NormBack(x_, d_first, true, to);
    AddRows(d_second, d_first, pool_);
    if (to.d_x.has_value()) CopyInto(d_first.view, to.d_x, pool_);
  }

 private:
  // What the attention reads.
  TensorView<const float> Input() const { return (pre_ ? first_ : x_).view; }

  RowNormOptions NormOptions(bool first) const {
    if (first) return {w_.norm1_weight, w_.norm1_bias, o_.epsilon};
    return {w_.norm2_weight, w_.norm2_bias, o_.epsilon};
  }

  OwnedHeads Normed(const OwnedHeads& rows, bool first) const {
    OwnedHeads normed = NewRows(rows.view, rows.view.shape[3]);
    const RowNormOptions options = NormOptions(first);
    RowNorm{o_.norm, options.epsilon, options.weight, options.bias}(rows.view, normed.view, pool_);
    return normed;
  }

  OwnedHeads NormBack(const OwnedHeads& rows, const OwnedHeads& d_normed, bool first,
                      const TransformerBlockGradients& to) const {
    OwnedHeads d_rows = NewRows(rows.view, rows.view.shape[3]);
    const NormGradients gradients = {d_rows.view, first ? to.d_norm1_weight : to.d_norm2_weight,
                                     first ? to.d_norm1_bias : to.d_norm2_bias};
    Clear(gradients.d_scale, &pool_);
    Clear(gradients.d_bias, &pool_);
    NormBackward(o_.norm, NormOptions(first), rows.view, d_normed.view, gradients, &pool_);
    return d_rows;
  }

  const TransformerBlockWeights& w_;
  const TransformerBlockOptions& o_;
  ThreadPool& pool_;
  const bool pre_;
  const OwnedHeads x_, first_;
  MultiHeadPass attention_;
  const OwnedHeads attended_;  // x and what attention gave
  OwnedHeads second_, last_;   // what the network reads, and behind it (kPost)
  std::optional<FeedForwardPass> feed_forward_;
};

}  // namespace

FeedForwardPass::FeedForwardPass(const TensorView<const float>& x, const TransformerBlockWeights& w,
                                 Activation activation, ThreadPool& pool)
    : x_(x),
      w_(w),
      activation_(activation),
      pool_(pool),
      gated_(w.w_gate.has_value()),
      up_(NewRows(x, w.w_up.shape[2])),
      hidden_(NewRows(x, w.w_up.shape[2])) {
  Linear(x, w.w_up, w.b_up, up_.view, &pool);
  if (!gated_) {
    Activate(activation, up_.data(), up_.view.size(), hidden_.data(), &pool);
    return;
  }
  gate_ = NewRows(x, w.w_up.shape[2]);
  activated_ = NewRows(x, w.w_up.shape[2]);
  Linear(x, w.w_gate, w.b_gate, gate_.view, &pool);
  Activate(activation, gate_.data(), gate_.view.size(), activated_.data(), &pool);
  Multiply(activated_, up_, hidden_, pool);
}

void FeedForwardPass::WriteOutput(const TensorView<float>& output) const {
  Linear(hidden_.view, w_.w_down, w_.b_down, output, &pool_);
}

void FeedForwardPass::Backward(const TensorView<const float>& d_output,
                               const TensorView<float>& d_x, const FeedForwardGradients& to) {
  d_up_ = NewRows(up_.view, up_.view.shape[3]);
  LinearBackward(hidden_.view, w_.w_down, d_output, {d_up_.view, to.d_w_down, to.d_b_down}, pool_);
  HiddenBackward();
  LinearBackward(x_, w_.w_up, d_up_.view, {d_x, to.d_w_up, to.d_b_up}, pool_);
  if (!gated_) return;
  const OwnedHeads d_more = NewRows(d_x, d_x.shape[3]);
  LinearBackward(x_, w_.w_gate, d_gate_.view, {d_more.view, to.d_w_gate, to.d_b_gate}, pool_);
  AddTo(d_more.data(), d_x.size(), &pool_, d_x.data);
}

void FeedForwardPass::HiddenBackward() {
  const int64_t count = up_.view.size();
  if (!gated_) {
    return ActivateBackward(activation_, up_.data(), d_up_.data(), count, d_up_.data(), &pool_);
  }
  d_gate_ = NewRows(up_.view, up_.view.shape[3]);
  Multiply(d_up_, up_, d_gate_, pool_);
  ActivateBackward(activation_, gate_.data(), d_gate_.data(), count, d_gate_.data(), &pool_);
  Multiply(d_up_, activated_, d_up_, pool_);
}

void TransformerBlockBackward(const TensorView<const float>& x,
                              const TransformerBlockWeights& weights,
                              const TransformerBlockOptions& options,
                              const TensorView<const float>& d_output,
                              const TransformerBlockGradients& to, ThreadPool& pool) {
  BlockPass(x, weights, options, pool).Backward(d_output, to);
}

}  // namespace heed
