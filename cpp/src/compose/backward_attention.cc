#include "src/compose/backward_attention.h"

#include "src/compose/backward_rows.h"
#include "src/gradient/problem.h"

namespace heed {
namespace {

TensorView<float> RowOf(std::span<float> values) {
  return Contiguous(values.data(), 1, 1, 1, static_cast<int64_t>(values.size()));
}

}  // namespace

KeptAttention::KeptAttention(const TensorView<const float>& q, const TensorView<const float>& k,
                             const TensorView<const float>& v, const AttentionOptions& options,
                             ThreadPool& pool)
    : q_(q),
      k_(k),
      v_(v),
      options_(options),
      pool_(pool),
      out_({q.shape[0], q.shape[1], q.shape[2], v.shape[3]}) {
  if (HasLse(options)) lse_ = OwnedTensor({q.shape[0], q.shape[1], q.shape[2], 1});
  AttentionOutputs outputs;
  outputs.output = out_.view();
  outputs.lse = lse_.view();
  Attention(q, k, v, options, outputs, &pool);
}

void KeptAttention::Backward(const TensorView<const float>& d_out,
                             const AttentionGradients& to) const {
  AttentionBackward(q_, k_, v_, out(), lse(), d_out, options_, to, &pool_);
}

AttentionGradients OptionSums::Next() {
  if (calls_++ == 0) return to_;
  if (calls_ == 2) Own();
  return own_;
}

void OptionSums::Own() {
  own_.score_mod_slope = to_.score_mod_slope;
  own_.prob_mod_slope = to_.prob_mod_slope;
  for (const TensorGradient& tensor : kTensorGradients) {
    const TensorView<float>& sum = to_.*tensor.gradient;
    if (!sum.has_value()) continue;
    own_.*tensor.gradient = memory_.emplace_back(sum.shape).view();
  }
  for (const VectorGradient& vector : kVectorGradients) {
    const size_t count = (to_.*vector.gradient).size();
    if (count == 0) continue;
    const Extents shape = {1, 1, 1, static_cast<int64_t>(count)};
    own_.*vector.gradient = {memory_.emplace_back(shape).view().data, count};
  }
}

void OptionSums::Add(const AttentionGradients& written) {
  if (calls_ < 2) return;
  for (const TensorGradient& tensor : kTensorGradients) {
    const TensorView<float>& more = written.*tensor.gradient;
    if (more.has_value()) AddRows(more, to_.*tensor.gradient, pool_);
  }
  for (const VectorGradient& vector : kVectorGradients) {
    const std::span<float> more = written.*vector.gradient;
    if (!more.empty()) AddRows(RowOf(more), RowOf(to_.*vector.gradient), pool_);
  }
}

}  // namespace heed
