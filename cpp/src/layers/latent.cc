#include "src/layers/latent.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "heed/linear.h"
#include "src/compose/compose_problem.h"
#include "src/exact/problem.h"
#include "src/layers/transformer_block.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/parallel/owned_heads.h"
#include "src/position/problem.h"
#include "src/view_checks.h"

namespace heed {
namespace {

constexpr float kStandIn = 0;

// Columns [first, first + count) of a tensor.
template <class T>
TensorView<T> Columns(TensorView<T> view, int64_t first, int64_t count) {
  view.data += first;
  view.shape[3] = count;
  view.strides[3] = 1;
  return view;
}

// Copies rows; one head of `from` serves all heads of `to`.
void CopyRows(const TensorView<const float>& from, const TensorView<float>& to, ThreadPool& pool) {
  if (to.shape[3] == 0) return;
  pool.Run(to.shape[0] * to.shape[2], [&](int64_t row, int) {
    const int64_t b = row / to.shape[2], i = row % to.shape[2];
    for (int64_t h = 0; h < to.shape[1]; ++h) {
      std::copy_n(&from(b, from.shape[1] == 1 ? 0 : h, i, 0), to.shape[3], &to(b, h, i, 0));
    }
  });
}

AttentionOptions WithScale(AttentionOptions options, int64_t head_dim) {
  if (!options.scale) options.scale = 1 / std::sqrt(static_cast<double>(head_dim));
  return options;
}

struct CoreShape {
  int64_t batch, num_heads, q_len, kv_len, nope_dim, rope_dim, kv_rank, head_dim_v;
};

void AttendNaive(const CoreShape& s, const TensorView<const float>& q,
                 const TensorView<const float>& latent, const TensorView<const float>& k_rope,
                 const TensorView<const float>& w_uk, const TensorView<const float>& w_uv,
                 const AttentionOptions& options, const AttentionOutputs& outputs,
                 ThreadPool& pool) {
  const OwnedHeads k(s.batch, s.num_heads, s.kv_len, s.nope_dim + s.rope_dim);
  const OwnedHeads v(s.batch, s.num_heads, s.kv_len, s.head_dim_v);
  Bmm(latent, TransposedView(w_uk), Columns(k.view, 0, s.nope_dim), &pool);
  if (s.rope_dim > 0) CopyRows(k_rope, Columns(k.view, s.nope_dim, s.rope_dim), pool);
  Bmm(latent, TransposedView(w_uv), v.view, &pool);
  Attention(q, k.view, v.view, options, outputs, &pool);
}

void AttendAbsorbed(const CoreShape& s, const TensorView<const float>& q,
                    const TensorView<const float>& latent, const TensorView<const float>& k_rope,
                    const TensorView<const float>& w_uk, const TensorView<const float>& w_uv,
                    const AttentionOptions& options, AttentionOutputs outputs, ThreadPool& pool) {
  const int64_t width = s.kv_rank + s.rope_dim;
  const OwnedHeads queries(s.batch, s.num_heads, s.q_len, width);
  const OwnedHeads keys(s.batch, 1, s.kv_len, width);
  const OwnedHeads found(s.batch, s.num_heads, s.q_len, s.kv_rank);
  Bmm(Columns(q, 0, s.nope_dim), w_uk, Columns(queries.view, 0, s.kv_rank), &pool);
  CopyRows(latent, Columns(keys.view, 0, s.kv_rank), pool);
  if (s.rope_dim > 0) {
    CopyRows(Columns(q, s.nope_dim, s.rope_dim), Columns(queries.view, s.kv_rank, s.rope_dim),
             pool);
    CopyRows(k_rope, Columns(keys.view, s.kv_rank, s.rope_dim), pool);
  }
  const TensorView<float> output = outputs.output;
  outputs.output = found.view;
  Attention(queries.view, keys.view, latent, options, outputs, &pool);
  Bmm(found.view, TransposedView(w_uv), output, &pool);
}

CoreShape ValidateCore(const TensorView<const float>& q, const TensorView<const float>& latent,
                       const TensorView<const float>& k_rope, const TensorView<const float>& w_uk,
                       const TensorView<const float>& w_uv, const LatentOptions& options,
                       bool wants_lse) {
  CheckEnum("form", options.form, LatentForm::kAbsorbed);
  CheckInput("q", q);
  CheckInput("latent", latent);
  CheckInput("w_uk", w_uk);
  CheckInput("w_uv", w_uv);
  CoreShape s;
  s.batch = q.shape[0];
  s.num_heads = q.shape[1];
  s.q_len = q.shape[2];
  s.kv_len = latent.shape[2];
  s.kv_rank = latent.shape[3];
  s.nope_dim = w_uk.shape[2];
  s.head_dim_v = w_uv.shape[2];
  s.rope_dim = k_rope.has_value() ? k_rope.shape[3] : 0;
  CheckShape("latent", latent.shape, {s.batch, 1, s.kv_len, s.kv_rank},
             "[batch, 1, kv_len, kv_rank], batch as in q");
  if (k_rope.has_value()) {
    CheckInput("k_rope", k_rope);
    CheckShape("k_rope", k_rope.shape, {s.batch, 1, s.kv_len, s.rope_dim},
               "[batch, 1, kv_len, rope_dim]");
  }
  CheckShape("w_uk", w_uk.shape, {1, s.num_heads, s.nope_dim, s.kv_rank},
             "[1, num_heads, nope_dim, kv_rank]");
  CheckShape("w_uv", w_uv.shape, {1, s.num_heads, s.head_dim_v, s.kv_rank},
             "[1, num_heads, head_dim_v, kv_rank]");
  CheckShape("q", q.shape, {s.batch, s.num_heads, s.q_len, s.nope_dim + s.rope_dim},
             "[batch, num_heads, q_len, nope_dim + rope_dim], nope_dim as in w_uk, rope_dim as in "
             "k_rope");
  if (options.attention.score != Score::kDot) {
    Fail(ErrorCode::kUnsupported, "latent attention needs dot-product scores: w_uk is absorbed");
  }
  RefuseOtherWidths(options.attention, "latent attention",
                    "queries and values of its forms differ in width");
  const auto shaped = [](int64_t batch, int64_t heads, int64_t len, int64_t dim) {
    return StoredTensor(ContiguousBlhd<const float>(&kStandIn, batch, len, heads, dim));
  };
  const int64_t dim = s.nope_dim + s.rope_dim;
  ValidateAttentionInputs(
      shaped(s.batch, s.num_heads, s.q_len, dim), shaped(s.batch, s.num_heads, s.kv_len, dim),
      shaped(s.batch, s.num_heads, s.kv_len, s.head_dim_v), options.attention, wants_lse);
  return s;
}

// Rows [batch, 1, len, dim], normalised to a root mean square of 1, times factors.
void NormRows(const TensorView<float>& rows, std::span<const float> factors, double epsilon,
              ThreadPool& pool) {
  if (factors.empty()) return;
  RowNorm{Norm::kRms, epsilon, factors, {}}(rows, rows, pool);
}

void CheckMatrix(std::string_view name, const TensorView<const float>& view,
                 const Extents& expected, std::string_view meaning) {
  CheckInput(name, view);
  CheckShape(name, view.shape, expected, meaning);
}

void CheckFactors(std::string_view name, std::span<const float> values, int64_t expected) {
  if (values.empty() || values.size() == static_cast<size_t>(expected)) return;
  Fail(ErrorCode::kShape, "{} has {} values; expected {}", {name, values.size(), expected});
}

}  // namespace

void LatentAttention(TensorView<const float> q, TensorView<const float> latent,
                     TensorView<const float> k_rope, TensorView<const float> w_uk,
                     TensorView<const float> w_uv, const LatentOptions& options,
                     const AttentionOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("latent attention", [&] {
    const CoreShape s =
        ValidateCore(q, latent, k_rope, w_uk, w_uv, options, outputs.lse.has_value());
    if (outputs.scores.has_value()) {
      Fail(ErrorCode::kUnsupported, "latent attention returns no scores");
    }
    RefuseStoredOutput(outputs);
    CheckOutput("output", outputs.output, {s.batch, s.num_heads, s.q_len, s.head_dim_v},
                "[batch, num_heads, q_len, head_dim_v]");
    if (outputs.lse.has_value()) {
      CheckOutput("lse", outputs.lse, {s.batch, s.num_heads, s.q_len, 1},
                  "[batch, num_heads, q_len, 1]");
    }
    if (outputs.weights.has_value()) {
      CheckOutput("weights", outputs.weights, {s.batch, s.num_heads, s.q_len, s.kv_len},
                  "[batch, num_heads, q_len, kv_len]");
    }
    SpansOf(outputs)
        .ApartFrom("q", q)
        .ApartFrom("latent", latent)
        .ApartFrom("k_rope", k_rope)
        .ApartFrom("w_uk", w_uk)
        .ApartFrom("w_uv", w_uv)
        .ApartFrom(options.attention);
    ThreadPool& threads = pool != nullptr ? *pool : DefaultThreadPool();
    const AttentionOptions o = WithScale(options.attention, s.nope_dim + s.rope_dim);
    if (options.form == LatentForm::kNaive) {
      AttendNaive(s, q, latent, k_rope, w_uk, w_uv, o, outputs, threads);
    } else {
      AttendAbsorbed(s, q, latent, k_rope, w_uk, w_uv, o, outputs, threads);
    }
  });
}

RopeOptions RotationOf(const MultiHeadLatentOptions& options) {
  RopeOptions rope;
  rope.base = options.rope_base;
  rope.scaling = options.rope_scaling;
  return rope;
}

LatentShape ValidateMultiHeadLatent(TensorView<const float> x, const LatentWeights& w,
                                    const MultiHeadLatentOptions& o, bool wants_lse) {
  CheckInput("x", x);
  LatentShape s;
  s.batch = x.shape[0];
  s.len = x.shape[2];
  s.embed_dim = x.shape[3];
  s.num_heads = w.w_uq.shape[1];
  s.nope_dim = w.w_uq.shape[2];
  s.q_rank = w.w_dq.has_value() ? w.w_dq.shape[2] : s.embed_dim;
  s.kv_rank = w.w_dkv.shape[2];
  s.rope_dim = w.w_kr.has_value() ? w.w_kr.shape[2] : 0;
  s.head_dim_v = w.w_uv.shape[2];
  s.out_dim = w.w_o.shape[1];
  CheckShape("x", x.shape, {s.batch, 1, s.len, s.embed_dim}, "[batch, 1, len, embed_dim]");
  if (w.w_dq.has_value()) {
    CheckMatrix("w_dq", w.w_dq, {1, 1, s.q_rank, s.embed_dim}, "[1, 1, q_rank, embed_dim]");
  }
  CheckMatrix("w_uq", w.w_uq, {1, s.num_heads, s.nope_dim, s.q_rank},
              "[1, num_heads, nope_dim, q_rank]");
  CheckMatrix("w_dkv", w.w_dkv, {1, 1, s.kv_rank, s.embed_dim}, "[1, 1, kv_rank, embed_dim]");
  if (w.w_qr.has_value() != w.w_kr.has_value()) {
    Fail(ErrorCode::kOption, "w_qr and w_kr go together; one of them is missing");
  }
  if (w.w_kr.has_value()) {
    CheckMatrix("w_kr", w.w_kr, {1, 1, s.rope_dim, s.embed_dim}, "[1, 1, rope_dim, embed_dim]");
    CheckMatrix("w_qr", w.w_qr, {1, s.num_heads, s.rope_dim, s.q_rank},
                "[1, num_heads, rope_dim, q_rank], rope_dim as in w_kr");
  }
  CheckMatrix("w_o", w.w_o, {1, s.out_dim, s.num_heads, s.head_dim_v},
              "[1, out_dim, num_heads, head_dim_v]");
  const bool flat = s.num_heads <= 1 || s.head_dim_v <= 1 || w.w_o.strides[2] == s.head_dim_v;
  if (!flat) Fail(ErrorCode::kShape, "w_o: its heads and head_dim_v must lie in one row");
  CheckFactors("norm_q_weight", w.norm_q_weight, s.q_rank);
  if (!w.norm_q_weight.empty() && !w.w_dq.has_value()) {
    Fail(ErrorCode::kOption, "norm_q_weight is given without w_dq");
  }
  CheckFactors("norm_kv_weight", w.norm_kv_weight, s.kv_rank);
  if (!(o.epsilon > 0) || !std::isfinite(o.epsilon)) {
    Fail(ErrorCode::kRange, "epsilon = {}; it must be positive and finite", {o.epsilon});
  }
  if (o.rope) CheckEnum("rope", *o.rope, RopePairing::kInterleaved);
  if (o.rope && (s.rope_dim == 0 || s.rope_dim % 2 != 0)) {
    Fail(ErrorCode::kShape, "rope_dim = {}; a rotation needs an even one, at least 2",
         {s.rope_dim});
  }
  if (!o.rope && o.rope_scaling.kind != RopeScaling::Kind::kNone) {
    Fail(ErrorCode::kOption, "rope_scaling is given without rope; there is no rotation to scale");
  }
  const auto shaped = [&](int64_t heads, int64_t dim) {
    return ContiguousBlhd<const float>(&kStandIn, s.batch, s.len, heads, dim);
  };
  const TensorView<const float> k_rope =
      w.w_kr.has_value() ? shaped(1, s.rope_dim) : TensorView<const float>();
  if (o.rope) ValidateRope(k_rope, *o.rope, RotationOf(o));
  ValidateCore(shaped(s.num_heads, s.nope_dim + s.rope_dim), shaped(1, s.kv_rank), k_rope, w.w_uk,
               w.w_uv, o.latent, wants_lse);
  return s;
}

void MultiHeadLatent(TensorView<const float> x, const LatentWeights& w,
                     const MultiHeadLatentOptions& options, const MultiHeadLatentOutputs& outputs,
                     ThreadPool* pool) {
  WithMemoryErrors("a latent attention layer", [&] {
    const LatentShape s = ValidateMultiHeadLatent(x, w, options, outputs.lse.has_value());
    CheckOutput("output", outputs.output, {s.batch, 1, s.len, s.out_dim},
                "[batch, 1, len, out_dim]");
    if (outputs.lse.has_value()) {
      CheckOutput("lse", outputs.lse, {s.batch, s.num_heads, s.len, 1},
                  "[batch, num_heads, len, 1]");
    }
    if (outputs.weights.has_value()) {
      CheckOutput("weights", outputs.weights, {s.batch, s.num_heads, s.len, s.len},
                  "[batch, num_heads, len, len]");
    }
    OutputSpans({{"output", outputs.output}, {"lse", outputs.lse}, {"weights", outputs.weights}})
        .ApartFrom("x", x)
        .ApartFrom(w)
        .ApartFrom(options.latent.attention);
    ThreadPool& threads = pool != nullptr ? *pool : DefaultThreadPool();
    const OwnedHeads latent(s.batch, 1, s.len, s.kv_rank);
    Linear(x, w.w_dkv, {}, latent.view, &threads);
    NormRows(latent.view, w.norm_kv_weight, options.epsilon, threads);
    OwnedHeads compressed;
    TensorView<const float> a = x;
    if (w.w_dq.has_value()) {
      compressed = OwnedHeads(s.batch, 1, s.len, s.q_rank);
      Linear(x, w.w_dq, {}, compressed.view, &threads);
      NormRows(compressed.view, w.norm_q_weight, options.epsilon, threads);
      a = compressed.view;
    }
    const OwnedHeads q(s.batch, s.num_heads, s.len, s.nope_dim + s.rope_dim);
    Bmm(a, TransposedView(w.w_uq), Columns(q.view, 0, s.nope_dim), &threads);
    OwnedHeads k_rope;
    if (w.w_kr.has_value()) {
      const TensorView<float> q_rope = Columns(q.view, s.nope_dim, s.rope_dim);
      Bmm(a, TransposedView(w.w_qr), q_rope, &threads);
      k_rope = OwnedHeads(s.batch, 1, s.len, s.rope_dim);
      Linear(x, w.w_kr, {}, k_rope.view, &threads);
      if (options.rope) {
        const RopeOptions rope = RotationOf(options);
        Rope(q_rope, *options.rope, rope, q_rope, &threads);
        Rope(k_rope.view, *options.rope, rope, k_rope.view, &threads);
      }
    }
    const OwnedHeads heads(s.batch, s.num_heads, s.len, s.head_dim_v);
    AttentionOutputs attended;
    attended.output = heads.view;
    attended.lse = outputs.lse;
    attended.weights = outputs.weights;
    LatentAttention(q.view, latent.view, k_rope.view, w.w_uk, w.w_uv, options.latent, attended,
                    &threads);
    const int64_t width = s.num_heads * s.head_dim_v;
    const TensorView<const float> w_o = {
        w.w_o.data, {1, 1, s.out_dim, width}, {0, 0, w.w_o.strides[1], 1}};
    Linear(Contiguous<const float>(heads.memory.get(), s.batch, 1, s.len, width), w_o, {},
           outputs.output, &threads);
  });
}

}  // namespace heed
