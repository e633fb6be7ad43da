// The boundary of MultiHead().
#include <string>

#include "src/compose/compose_problem.h"
#include "src/exact/problem.h"
#include "src/layers/multi_head.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// Where validation needs a pointer that is not null and never read.
constexpr float kStandIn = 0;

// A matrix whose rows (heads and head_dim) or columns flatten to one dimension.
void CheckHeads(std::string_view name, const TensorView<const float>& view, size_t heads_axis) {
  CheckPresent(name, view);
  const int64_t inner = view.shape[heads_axis + 1];
  if (view.shape[heads_axis] <= 1 || inner <= 1) return;
  if (view.strides[heads_axis] == inner * view.strides[heads_axis + 1]) return;
  Fail(ErrorCode::kShape,
       "{} has shape {} and strides {}; its heads and head_dim must lie in one row",
       {name, view.shape, view.strides});
}

void CheckSource(std::string_view name, const TensorView<const float>& view,
                 const Extents& expected, std::string_view meaning) {
  CheckInput(name, view);
  CheckShape(name, view.shape, expected, meaning);
}

void CheckBias(std::string_view name, std::span<const float> values, int64_t expected) {
  if (values.empty() || values.size() == static_cast<size_t>(expected)) return;
  Fail(ErrorCode::kShape, "{} has {} values; expected {}", {name, values.size(), expected});
}

void CheckWeights(const MultiHeadWeights& w, const MultiHeadShape& s, const Extents& query,
                  const Extents& key, const Extents& value) {
  CheckHeads("w_q", w.w_q, 1);
  CheckHeads("w_k", w.w_k, 1);
  CheckHeads("w_v", w.w_v, 1);
  CheckShape("w_q", w.w_q.shape, {1, s.num_heads, s.head_dim, query[3]},
             "[1, num_heads, head_dim, embed_dim], embed_dim as in query");
  CheckShape("w_k", w.w_k.shape, {1, s.num_kv_heads, s.head_dim, key[3]},
             "[1, num_kv_heads, head_dim, kdim], head_dim as in w_q, kdim as in key");
  CheckShape("w_v", w.w_v.shape, {1, s.num_kv_heads, s.head_dim_v, value[3]},
             "[1, num_kv_heads, head_dim_v, vdim], num_kv_heads as in w_k, vdim as in value");
  if (w.w_o.has_value()) {
    CheckHeads("w_o", w.w_o, 2);
    CheckShape("w_o", w.w_o.shape, {1, s.out_dim, s.num_heads, s.head_dim_v},
               "[1, out_dim, num_heads, head_dim_v]");
  } else if (!w.b_o.empty()) {
    Fail(ErrorCode::kOption, "b_o is given without w_o");
  }
  CheckBias("b_q", w.b_q, s.num_heads * s.head_dim);
  CheckBias("b_k", w.b_k, s.num_kv_heads * s.head_dim);
  CheckBias("b_v", w.b_v, s.num_kv_heads * s.head_dim_v);
  CheckBias("b_o", w.b_o, s.out_dim);
  if (w.bias_k.empty() != w.bias_v.empty()) {
    Fail(ErrorCode::kOption, "bias_k and bias_v go together; one of them is missing");
  }
  CheckBias("bias_k", w.bias_k, s.num_kv_heads * s.head_dim);
  CheckBias("bias_v", w.bias_v, s.num_kv_heads * s.head_dim_v);
}

void CheckHeadMask(std::span<const float> head_mask, int64_t num_heads) {
  CheckBias("head_mask", head_mask, num_heads);
  for (const float factor : head_mask) CheckFinite("head_mask", factor);
}

}  // namespace

MultiHeadShape ValidateMultiHead(TensorView<const float> query, TensorView<const float> key,
                                 TensorView<const float> value, const MultiHeadWeights& weights,
                                 const MultiHeadOptions& options, bool wants_lse) {
  MultiHeadShape s;
  s.batch = query.shape[0];
  s.q_len = query.shape[2];
  s.kv_len = key.shape[2];
  CheckSource("query", query, {s.batch, 1, s.q_len, query.shape[3]},
              "[batch, 1, q_len, embed_dim]");
  CheckSource("key", key, {s.batch, 1, s.kv_len, key.shape[3]}, "[batch, 1, kv_len, kdim]");
  CheckSource("value", value, {s.batch, 1, s.kv_len, value.shape[3]},
              "[batch, 1, kv_len, vdim], kv_len as in key");
  s.num_heads = weights.w_q.shape[1];
  s.head_dim = weights.w_q.shape[2];
  s.num_kv_heads = weights.w_k.shape[1];
  s.head_dim_v = weights.w_v.shape[2];
  s.out_dim = weights.w_o.has_value() ? weights.w_o.shape[1] : s.num_heads * s.head_dim_v;
  CheckWeights(weights, s, query.shape, key.shape, value.shape);
  CheckHeadMask(options.head_mask, s.num_heads);
  s.extra = (weights.bias_k.empty() ? 0 : 1) + (options.add_zero_attn ? 1 : 0);
  const AttentionOptions& o = options.attention;
  if (s.extra > 0 && (o.score != Score::kDot || o.normalize != Normalize::kSoftmax)) {
    Fail(ErrorCode::kUnsupported,
         "bias_k, bias_v and add_zero_attn need dot-product scores and softmax");
  }
  if (s.extra > 0 && o.prob_mod) {
    Fail(ErrorCode::kUnsupported,
         "prob_mod with bias_k, bias_v or add_zero_attn: the weights of "
         "these keys join when all others are summed");
  }
  if (s.extra > 0) {
    RefuseOtherWidths(o, "a layer with bias_k, bias_v or add_zero_attn",
                      "these keys have no distance");
  }
  const auto heads = [&](int64_t len, int64_t num_heads, int64_t head_dim) {
    return StoredTensor(ContiguousBlhd<const float>(&kStandIn, s.batch, len, num_heads, head_dim));
  };
  ValidateAttentionInputs(heads(s.q_len, s.num_heads, s.head_dim),
                          heads(s.kv_len, s.num_kv_heads, s.head_dim),
                          heads(s.kv_len, s.num_kv_heads, s.head_dim_v), o, wants_lse);
  return s;
}

}  // namespace heed
