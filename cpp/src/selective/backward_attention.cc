#include "src/selective/backward_attention.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "src/compose/compose_problem.h"
#include "src/gradient/problem.h"

namespace heed {

ChosenAttention::ChosenAttention(const TensorView<const float>& q, const TensorView<const float>& k,
                                 const TensorView<const float>& v, const AttentionOptions& options,
                                 std::shared_ptr<const CellKeep> chosen, ThreadPool& pool)
    : q_(q), k_(k), v_(v), options_(options), chosen_(std::move(chosen)), pool_(pool) {
  const auto& [batch, heads, len, dim] = q.shape;
  out_ = OwnedTensor({batch, heads, len, v.shape[3]});
  lse_ = OwnedTensor({batch, heads, len, 1});
  AttentionOutputs outputs;
  outputs.output = out_.view();
  outputs.lse = lse_.view();
  AttentionProblem p = ValidateComposed(q, k, v, options, outputs);
  p.chosen = chosen_;
  RunProblem(p, &pool);
}

void ChosenAttention::Hide(int64_t b, int64_t h, int64_t i) const {
  std::fill_n(RowOf(out_.view(), b, h, i), out_.view().shape[3], 0.0f);
  lse_.view()(b, h, i, 0) = -std::numeric_limits<float>::infinity();
}

void ChosenAttention::Backward(const TensorView<const float>& d_out,
                               const AttentionGradients& to) const {
  GradientProblem g =
      ValidateGradient(StoredTensor(q_), StoredTensor(k_), StoredTensor(v_),
                       StoredTensor(out_.view()), lse_.view(), StoredTensor(d_out), options_, to);
  g.attention.chosen = chosen_;
  RunGradientProblem(g, &pool_);
}

}  // namespace heed
