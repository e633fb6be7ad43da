#include "src/layers/backward_multi_head.h"

#include <algorithm>

#include "heed/linear.h"
#include "src/layers/backward_extra_keys.h"
#include "src/linear/backward_linear.h"
#include "src/message.h"
#include "src/parallel/pieces.h"

namespace heed {
namespace {

OwnedHeads Like(const OwnedHeads& tensor) {
  const auto& [batch, heads, len, dim] = tensor.view.shape;
  return {batch, heads, len, dim};
}

MultiHeadWeights WithoutOutput(MultiHeadWeights w) {
  w.w_o = {};
  w.b_o = {};
  return w;
}

// Writes 0 to a head of every batch entry.
void ClearHead(const TensorView<float>& heads, int64_t head) {
  for (int64_t b = 0; b < heads.shape[0]; ++b) {
    for (int64_t i = 0; i < heads.shape[2]; ++i) {
      for (int64_t d = 0; d < heads.shape[3]; ++d) heads(b, head, i, d) = 0;
    }
  }
}

}  // namespace

MultiHeadPass::MultiHeadPass(const MultiHeadShape& shape, const TensorView<const float>& query,
                             const TensorView<const float>& key,
                             const TensorView<const float>& value, const MultiHeadWeights& weights,
                             const MultiHeadOptions& options, ThreadPool& pool)
    : s_(shape),
      query_(query),
      key_(key),
      value_(value),
      w_(weights),
      o_(options),
      pool_(pool),
      projected_(s_, w_, query_, key_, value_, pool_),
      heads_(s_.batch, s_.num_heads, s_.q_len, s_.head_dim_v),
      lse_(s_.batch, 1, s_.num_heads, s_.q_len) {
  lse_.view = Contiguous(lse_.data(), s_.batch, s_.num_heads, s_.q_len, 1);
  MultiHeadOutputs outputs;
  outputs.output = RowsOf(heads_);
  outputs.lse = lse_.view;
  AttendHeads(s_, WithoutOutput(w_), o_, projected_, outputs, pool_);
  if (o_.head_mask.empty()) return;
  masked_ = Like(heads_);
  ForEachRows(s_.batch * s_.q_len, s_.num_heads * s_.head_dim_v, &pool_,
              [&](int64_t begin, int64_t end) {
                const int64_t width = s_.num_heads * s_.head_dim_v;
                for (int64_t n = begin * width; n < end * width; ++n) {
                  const float factor = o_.head_mask[static_cast<size_t>(n % width / s_.head_dim_v)];
                  masked_.data()[n] = factor == 0 ? 0 : factor * heads_.data()[n];
                }
              });
}

TensorView<const float> MultiHeadPass::MaskedRows() const {
  return RowsOf(o_.head_mask.empty() ? heads_ : masked_);
}

void MultiHeadPass::WriteOutput(const TensorView<float>& output) const {
  if (!w_.w_o.has_value()) return CopyInto(MaskedRows(), output, pool_);
  Linear(MaskedRows(), FlatCols(w_.w_o), w_.b_o, output, &pool_);
}

void MultiHeadPass::Backward(const TensorView<const float>& d_output,
                             const MultiHeadGradients& to) {
  HeadsBackward(d_output, to);
  if (!o_.head_mask.empty()) MaskBackward(to.d_head_mask);
  FindLeftOut(to.attention.d_lse.has_value());
  ClearLeftOut();
  AttentionGradientsOf(to.attention);
  if (!w_.bias_k.empty()) {
    const ExtraKeyRows rows = {projected_.q.view, heads_.view,        lse_.view,
                               d_heads_.view,     to.attention.d_lse, left_out_};
    ExtraKeysBackward(s_, w_, o_, rows, d_q_.view, to.d_bias_k, to.d_bias_v, pool_);
  }
  if (to.d_projected_query.has_value()) AddToQueries(to.d_projected_query);
  ProjectionsBackward(to);
}

void MultiHeadPass::AddToQueries(const TensorView<const float>& d_rows) const {
  const int64_t width = s_.num_heads * s_.head_dim;
  ForEachRows(s_.batch * s_.q_len, width, &pool_, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin * width; n < end * width; ++n) d_q_.data()[n] += d_rows.data[n];
  });
}

void MultiHeadPass::HeadsBackward(const TensorView<const float>& d_output,
                                  const MultiHeadGradients& to) {
  d_heads_ = Like(heads_);
  if (w_.w_o.has_value()) {
    LinearGradients linear = {RowsOf(d_heads_), {}, to.d_b_o};
    if (to.d_w_o.has_value()) linear.d_weight = FlatCols(to.d_w_o);
    return LinearBackward(MaskedRows(), FlatCols(w_.w_o), d_output, linear, pool_);
  }
  CopyInto(d_output, RowsOf(d_heads_), pool_);
}

// Pruned heads, unless something arrives at their lse, which head_mask does not touch.
void MultiHeadPass::FindLeftOut(bool has_d_lse) {
  left_out_.assign(static_cast<size_t>(s_.num_heads), 0);
  for (size_t h = 0; h < o_.head_mask.size() && !has_d_lse; ++h) {
    left_out_[h] = o_.head_mask[h] == 0;
  }
}

// From what arrives at the masked heads to what arrives at the heads.
void MultiHeadPass::MaskBackward(std::span<float> d_head_mask) {
  pool_.Run(s_.num_heads, [&](int64_t h, int) {
    const float factor = o_.head_mask[static_cast<size_t>(h)];
    double sum = 0;
    for (int64_t b = 0; b < s_.batch; ++b) {
      for (int64_t i = 0; i < s_.q_len; ++i) {
        for (int64_t d = 0; d < s_.head_dim_v; ++d) {
          float& arriving = d_heads_.view(b, h, i, d);
          const float head = heads_.view(b, h, i, d);
          if (head != 0 && arriving != 0) sum += static_cast<double>(arriving) * head;
          arriving = factor == 0 ? 0 : factor * arriving;
        }
      }
    }
    if (!d_head_mask.empty()) d_head_mask[static_cast<size_t>(h)] = static_cast<float>(sum);
  });
}

// Makes heads that are left out finite, with weights of e^0 and nothing that arrives.
void MultiHeadPass::ClearLeftOut() {
  pool_.Run(s_.num_heads, [&](int64_t h, int) {
    if (!IsLeftOut(h)) return;
    for (const OwnedHeads* tensor : {&projected_.q, &heads_, &lse_}) ClearHead(tensor->view, h);
  });
  pool_.Run(s_.num_kv_heads, [&](int64_t kv_head, int) {
    if (!IsGroupLeftOut(kv_head)) return;
    ClearHead(projected_.k.view, kv_head);
    ClearHead(projected_.v.view, kv_head);
  });
}

bool MultiHeadPass::IsGroupLeftOut(int64_t kv_head) const {
  const int64_t group = s_.num_heads / s_.num_kv_heads;
  const auto first = left_out_.begin() + kv_head * group;
  return std::all_of(first, first + group, [](char left_out) { return left_out != 0; });
}

void MultiHeadPass::AttentionGradientsOf(const AttentionGradients& wanted) {
  d_q_ = Like(projected_.q);
  d_k_ = Like(projected_.k);
  d_v_ = Like(projected_.v);
  AttentionGradients to = wanted;
  to.d_q = d_q_.view;
  to.d_k = d_k_.view;
  to.d_v = d_v_.view;
  AttentionBackward(TensorView<const float>(projected_.q.view), projected_.k.view,
                    projected_.v.view, heads_.view, lse_.view, d_heads_.view, o_.attention, to,
                    &pool_);
  // Keys that other heads see may have made them NaN.
  pool_.Run(s_.num_heads, [&](int64_t h, int) {
    const size_t head = static_cast<size_t>(h);
    if (!IsLeftOut(h)) return;
    ClearHead(d_q_.view, h);
    if (!to.d_sinks.empty()) to.d_sinks[head] = 0;
    if (!to.d_alibi_slopes.empty()) to.d_alibi_slopes[head] = 0;
  });
}

// A projection [1, heads, head_dim, in] whose heads that are left out are 0, as rows.
OwnedHeads MultiHeadPass::ClearedWeight(const TensorView<const float>& w,
                                        bool (MultiHeadPass::*is_left_out)(int64_t) const) const {
  const auto& [one, heads, dim, in_dim] = w.shape;
  OwnedHeads cleared(1, 1, heads * dim, in_dim);
  pool_.Run(heads, [&](int64_t h, int) {
    const bool left_out = (this->*is_left_out)(h);
    for (int64_t d = 0; d < w.shape[2]; ++d) {
      for (int64_t c = 0; c < w.shape[3]; ++c) {
        cleared.view(0, 0, h * w.shape[2] + d, c) = left_out ? 0 : w(0, h, d, c);
      }
    }
  });
  return cleared;
}

void MultiHeadPass::ProjectionsBackward(const MultiHeadGradients& to) const {
  const bool all = std::count(left_out_.begin(), left_out_.end(), 0) == s_.num_heads;
  const auto go = [&](const TensorView<const float>& x, const TensorView<const float>& w,
                      bool (MultiHeadPass::*is_left_out)(int64_t) const, const OwnedHeads& d_heads,
                      LinearGradients linear) {
    if (linear.d_weight.has_value()) linear.d_weight = FlatRows(linear.d_weight);
    OwnedHeads cleared;
    if (!all) cleared = ClearedWeight(w, is_left_out);
    const TensorView<const float> rows = all ? FlatRows(w) : cleared.view;
    LinearBackward(x, rows, RowsOf(d_heads), linear, pool_);
  };
  go(query_, w_.w_q, &MultiHeadPass::IsLeftOut, d_q_, {to.d_query, to.d_w_q, to.d_b_q});
  go(key_, w_.w_k, &MultiHeadPass::IsGroupLeftOut, d_k_, {to.d_key, to.d_w_k, to.d_b_k});
  go(value_, w_.w_v, &MultiHeadPass::IsGroupLeftOut, d_v_, {to.d_value, to.d_w_v, to.d_b_v});
}

}  // namespace heed
