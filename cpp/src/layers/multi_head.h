// Multi-head attention after validation.
#ifndef HEED_SRC_LAYERS_MULTI_HEAD_H_
#define HEED_SRC_LAYERS_MULTI_HEAD_H_

#include <cstdint>

#include "heed/layers.h"
#include "src/exact/attention_spans.h"
#include "src/parallel/owned_heads.h"

namespace heed {

struct MultiHeadShape {
  int64_t batch, q_len, kv_len;
  int64_t num_heads, num_kv_heads, head_dim, head_dim_v;
  int64_t out_dim;
  int64_t extra;  // keys that every query sees, behind those of `key`
};

// All that is read, by the names of the fields: a new one does not compile until it stands here.
template <class Visit>
void ForEachView(const MultiHeadWeights& weights, const Visit& visit) {
  const auto& [w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o, bias_k, bias_v] = weights;
  visit("w_q", w_q);
  visit("w_k", w_k);
  visit("w_v", w_v);
  visit("w_o", w_o);
  visit("b_q", b_q);
  visit("b_k", b_k);
  visit("b_v", b_v);
  visit("b_o", b_o);
  visit("bias_k", bias_k);
  visit("bias_v", bias_v);
}
template <class Visit>
void ForEachView(const MultiHeadOptions& options, const Visit& visit) {
  const auto& [attention, add_zero_attn, head_mask] = options;
  ForEachView(attention, visit);
  visit("head_mask", head_mask);
}

// Checks everything but the outputs; throws Error.
MultiHeadShape ValidateMultiHead(TensorView<const float> query, TensorView<const float> key,
                                 TensorView<const float> value, const MultiHeadWeights& weights,
                                 const MultiHeadOptions& options, bool wants_lse);

// [1, heads, head_dim, in] as [1, 1, heads * head_dim, in].
template <typename T>
TensorView<T> FlatRows(const TensorView<T>& w) {
  const int64_t stride = w.shape[2] > 1 ? w.strides[2] : w.strides[1];
  return {w.data, {1, 1, w.shape[1] * w.shape[2], w.shape[3]}, {0, 0, stride, w.strides[3]}};
}

// [1, out, heads, head_dim] as [1, 1, out, heads * head_dim].
template <typename T>
TensorView<T> FlatCols(const TensorView<T>& w) {
  const int64_t stride = w.shape[3] > 1 ? w.strides[3] : w.strides[2];
  return {w.data, {1, 1, w.shape[1], w.shape[2] * w.shape[3]}, {0, 0, w.strides[1], stride}};
}

// Rows [batch, 1, len, heads * head_dim] as [batch, heads, len, head_dim].
template <typename T>
TensorView<T> SplitHeads(const TensorView<T>& rows, int64_t num_heads, int64_t head_dim) {
  return {rows.data,
          {rows.shape[0], num_heads, rows.shape[2], head_dim},
          {rows.strides[0], head_dim, rows.strides[2], 1}};
}

// Heads that lie side by side as rows.
inline TensorView<float> RowsOf(const OwnedHeads& heads) {
  const auto& [batch, num_heads, len, dim] = heads.view.shape;
  return Contiguous(heads.data(), batch, 1, len, num_heads * dim);
}

// The projected queries, keys and values, [batch, heads, len, head_dim].
struct ProjectedHeads {
  OwnedHeads q, k, v;

  ProjectedHeads(const MultiHeadShape& shape, const MultiHeadWeights& weights,
                 const TensorView<const float>& query, const TensorView<const float>& key,
                 const TensorView<const float>& value, ThreadPool& pool);
};

// What happens between the projections, extra keys included and head_mask not: outputs.output is
// [batch, 1, q_len, num_heads * head_dim_v], and `weights` has no w_o.
void AttendHeads(const MultiHeadShape& shape, const MultiHeadWeights& weights,
                 const MultiHeadOptions& options, const ProjectedHeads& projected,
                 const MultiHeadOutputs& outputs, ThreadPool& pool);

// MultiHead() once its projections are there; nothing is checked.
void FinishMultiHead(const MultiHeadShape& shape, const MultiHeadWeights& weights,
                     const MultiHeadOptions& options, const ProjectedHeads& projected,
                     const MultiHeadOutputs& outputs, ThreadPool& pool);

// The score of a query [head_dim] and bias_k.
double ExtraKeyScore(const MultiHeadShape& shape, const MultiHeadWeights& weights,
                     const AttentionOptions& options, const float* q, int64_t kv_head);

// What products of queries and keys are multiplied by.
double HeadScale(const MultiHeadShape& shape, const AttentionOptions& options);

}  // namespace heed

#endif  // HEED_SRC_LAYERS_MULTI_HEAD_H_
