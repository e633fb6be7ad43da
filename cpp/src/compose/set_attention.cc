// Set Transformer blocks and the Perceiver's cross-attention: multi-head attention with residuals,
// norms and a feed-forward network around it.
#include "src/compose/set_attention.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "heed/linear.h"
#include "src/compose/checks.h"
#include "src/compose/rows.h"
#include "src/layers/multi_head.h"
#include "src/layers/transformer_block.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/rows/activation.h"
#include "src/view_checks.h"

namespace heed {
namespace {

void CheckEpsilon(double epsilon) {
  if (epsilon > 0 && std::isfinite(epsilon)) return;
  Fail(ErrorCode::kRange, "epsilon = {}; it must be positive and finite", {epsilon});
}

void CheckMatrix(std::string_view name, const TensorView<const float>& matrix, int64_t out,
                 int64_t in) {
  CheckPresent(name, matrix);
  CheckShape(name, matrix.shape, {1, 1, out, in}, "1, 1, out, in");
}

// The attention gives rows that can be added to those of x.
void CheckAttention(const TensorView<const float>& x, const TensorView<const float>& y,
                    const MultiHeadWeights& weights, const MultiHeadOptions& options) {
  const MultiHeadShape shape = ValidateMultiHead(x, y, y, weights, options, false);
  if (shape.out_dim == x.shape[3]) return;
  Fail(
      ErrorCode::kShape,
      "w_o, or without it the heads, give rows of {}; expected embed_dim = {}: they take the place "
      "of the queries' rows",
      {shape.out_dim, x.shape[3]});
}

// The projected queries take the place of x.
void CheckProjectedResidual(const MultiHeadWeights& w, int64_t dim) {
  if (w.w_o.has_value()) {
    Fail(ErrorCode::kOption, "w_o is given; with a projected residual there is no output matrix");
  }
  const int64_t width = w.w_q.shape[1] * w.w_q.shape[2];
  if (width == dim) return;
  Fail(ErrorCode::kShape, "w_q gives rows of {}; expected embed_dim = {}: they are the residual",
       {width, dim});
}

OutputSpans CheckRowsOutput(const TensorView<float>& output, const TensorView<const float>& x) {
  CheckOutput("output", output, x.shape, "[batch, 1, q_len, embed_dim]");
  return OutputSpans({{"output", output}});
}

void NormInto(const TensorView<const float>& from, const RowNorm* norm, const TensorView<float>& to,
              ThreadPool& pool) {
  if (norm != nullptr) return (*norm)(from, to, pool);
  if (to.shape[3] == 0 || from.data == to.data) return;
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t i) {
    std::copy_n(&from(b, h, i, 0), to.shape[3], &to(b, h, i, 0));
  });
}

// to = activate(to) + x.
template <class Activation>
void AddRows(const TensorView<const float>& x, const TensorView<float>& to, Activation activate,
             ThreadPool& pool) {
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t i) {
    for (int64_t d = 0; d < to.shape[3]; ++d) {
      float& sum = to(b, h, i, d);
      sum = activate(sum) + x(b, h, i, d);
    }
  });
}

float Same(float x) { return x; }
float Relu(float x) { return x < 0 ? 0.0f : x; }  // NaN stays

void Attend(const TensorView<const float>& x, const TensorView<const float>& y,
            const MultiHeadWeights& weights, const MultiHeadOptions& options,
            const TensorView<float>& to, ThreadPool& pool) {
  MultiHeadOutputs outputs;
  outputs.output = to;
  MultiHead(x, y, y, weights, options, outputs, &pool);
}

// The sum of the projected queries and of what they read.
void AttendAndAddQueries(const TensorView<const float>& x, const TensorView<const float>& y,
                         const MultiHeadWeights& weights, const MultiHeadOptions& options,
                         const TensorView<float>& to, ThreadPool& pool) {
  if (to.size() == 0) return;
  const MultiHeadShape shape = ValidateMultiHead(x, y, y, weights, options, false);
  const ProjectedHeads projected(shape, weights, x, y, y, pool);
  MultiHeadOutputs outputs;
  outputs.output = to;
  FinishMultiHead(shape, weights, options, projected, outputs, pool);
  AddRows(RowsOf(projected.q), to, Same, pool);
}

// MAB whose arguments have been checked.
void RunSetBlock(const TensorView<const float>& x, const TensorView<const float>& y,
                 const SetBlockWeights& w, const SetBlockOptions& o,
                 const TensorView<float>& output, ThreadPool& pool) {
  const Norm kind = o.norm.value_or(Norm::kLayer);
  const RowNorm norm1 = {kind, o.epsilon, w.norm1_weight, w.norm1_bias};
  const RowNorm norm2 = {kind, o.epsilon, w.norm2_weight, w.norm2_bias};
  const OwnedTensor h(x.shape);
  if (o.residual == SetResidual::kProjected) {
    AttendAndAddQueries(x, y, w.attention, o.attention, h.view(), pool);
  } else {
    Attend(x, y, w.attention, o.attention, h.view(), pool);
    AddRows(x, h.view(), Same, pool);
  }
  NormInto(h.view(), o.norm ? &norm1 : nullptr, h.view(), pool);
  Linear(h.view(), w.w_ff, w.b_ff, output, &pool);
  AddRows(h.view(), output, Relu, pool);
  NormInto(output, o.norm ? &norm2 : nullptr, output, pool);
}

}  // namespace

TensorView<const float> RowsOfBatch(TensorView<const float> rows, int64_t batch) {
  if (rows.shape[0] == 1) {
    rows.shape[0] = batch;
    rows.strides[0] = 0;
  }
  return rows;
}

void ValidateSetBlock(const TensorView<const float>& x, const TensorView<const float>& y,
                      const SetBlockWeights& w, const SetBlockOptions& o) {
  if (o.norm) CheckEnum("norm", *o.norm, Norm::kRms);
  CheckEnum("residual", o.residual, SetResidual::kProjected);
  CheckAttention(x, y, w.attention, o.attention);
  CheckEpsilon(o.epsilon);
  const int64_t dim = x.shape[3];
  if (o.residual == SetResidual::kProjected) CheckProjectedResidual(w.attention, dim);
  CheckMatrix("w_ff", w.w_ff, dim, dim);
  CheckValueCount("b_ff", w.b_ff.size(), dim, "embed_dim");
  CheckValueCount("norm1_weight", w.norm1_weight.size(), dim, "embed_dim");
  CheckValueCount("norm1_bias", w.norm1_bias.size(), dim, "embed_dim");
  CheckValueCount("norm2_weight", w.norm2_weight.size(), dim, "embed_dim");
  CheckValueCount("norm2_bias", w.norm2_bias.size(), dim, "embed_dim");
}

void SetAttentionBlock(TensorView<const float> x, TensorView<const float> y,
                       const SetBlockWeights& weights, const SetBlockOptions& options,
                       TensorView<float> output, ThreadPool* pool) {
  WithMemoryErrors("a set attention block", [&] {
    x = RowsOfBatch(x, y.shape[0]);
    ValidateSetBlock(x, y, weights, options);
    CheckRowsOutput(output, x).ApartFrom("x", x).ApartFrom("y", y).ApartFrom(weights).ApartFrom(
        options.attention);
    RunSetBlock(x, y, weights, WithOwnScale(options, x.shape[3]), output, PoolOrDefault(pool));
  });
}

SetBlockOptions WithOwnScale(const SetBlockOptions& options, int64_t embed_dim) {
  SetBlockOptions all = options;
  std::optional<double>& scale = all.attention.attention.scale;
  if (options.residual == SetResidual::kProjected && !scale && embed_dim > 0) {
    scale = 1 / std::sqrt(static_cast<double>(embed_dim));
  }
  return all;
}

SetBlockOptions OptionsOfSecond(const SetBlockOptions& options) {
  SetBlockOptions second = options;
  second.attention = {};
  second.attention.attention.scale = options.attention.attention.scale;
  return second;
}

void InducedSetAttention(TensorView<const float> x, TensorView<const float> inducing,
                         const SetBlockWeights& first, const SetBlockWeights& second,
                         const SetBlockOptions& options, TensorView<float> output,
                         ThreadPool* pool) {
  WithMemoryErrors("induced set attention", [&] {
    inducing = RowsOfBatch(inducing, x.shape[0]);
    ValidateSetBlock(inducing, x, first, options);
    const OwnedTensor h(inducing.shape);
    ValidateSetBlock(x, h.view(), second, OptionsOfSecond(options));
    CheckRowsOutput(output, x)
        .ApartFrom("x", x)
        .ApartFrom("inducing", inducing)
        .ApartFrom(first, "first.")
        .ApartFrom(second, "second.")
        .ApartFrom(options.attention);
    ThreadPool& threads = PoolOrDefault(pool);
    const SetBlockOptions scaled = WithOwnScale(options, x.shape[3]);
    RunSetBlock(inducing, x, first, scaled, h.view(), threads);
    RunSetBlock(x, h.view(), second, OptionsOfSecond(scaled), output, threads);
  });
}

void ValidatePerceiver(const TensorView<const float>& latents, const TensorView<const float>& input,
                       const PerceiverWeights& w, const PerceiverOptions& o) {
  CheckEnum("activation", o.activation, Activation::kRelu);
  CheckAttention(latents, input, w.attention, o.attention);
  CheckEpsilon(o.epsilon);
  const int64_t dim = latents.shape[3], ff_dim = w.w_up.shape[2];
  CheckMatrix("w_up", w.w_up, ff_dim, dim);
  CheckMatrix("w_down", w.w_down, dim, ff_dim);
  CheckValueCount("b_up", w.b_up.size(), ff_dim, "ff_dim");
  CheckValueCount("b_down", w.b_down.size(), dim, "embed_dim");
  CheckValueCount("norm1_weight", w.norm1_weight.size(), dim, "embed_dim");
  CheckValueCount("norm1_bias", w.norm1_bias.size(), dim, "embed_dim");
  CheckValueCount("norm2_weight", w.norm2_weight.size(), dim, "embed_dim");
  CheckValueCount("norm2_bias", w.norm2_bias.size(), dim, "embed_dim");
  CheckValueCount("key_norm_weight", w.key_norm_weight.size(), input.shape[3], "kdim");
  CheckValueCount("key_norm_bias", w.key_norm_bias.size(), input.shape[3], "kdim");
}

void PerceiverBlock(TensorView<const float> latents, TensorView<const float> input,
                    const PerceiverWeights& w, const PerceiverOptions& o, TensorView<float> output,
                    ThreadPool* pool) {
  WithMemoryErrors("a Perceiver block", [&] {
    latents = RowsOfBatch(latents, input.shape[0]);
    ValidatePerceiver(latents, input, w, o);
    CheckRowsOutput(output, latents)
        .ApartFrom("latents", latents)
        .ApartFrom("input", input)
        .ApartFrom(w)
        .ApartFrom(o.attention);
    ThreadPool& threads = PoolOrDefault(pool);
    const RowNorm norm1 = {Norm::kLayer, o.epsilon, w.norm1_weight, w.norm1_bias};
    const RowNorm norm2 = {Norm::kLayer, o.epsilon, w.norm2_weight, w.norm2_bias};
    const RowNorm key_norm = {Norm::kLayer, o.epsilon, w.key_norm_weight, w.key_norm_bias};
    const Extents& shape = latents.shape;
    const OwnedTensor normed(shape), z(shape), keys(input.shape);
    const OwnedTensor hidden({shape[0], 1, shape[2], w.w_up.shape[2]});

    NormInto(latents, &norm1, normed.view(), threads);
    NormInto(input, &key_norm, keys.view(), threads);
    Attend(normed.view(), keys.view(), w.attention, o.attention, z.view(), threads);
    if (o.query_residual) AddRows(latents, z.view(), Same, threads);

    NormInto(z.view(), &norm2, normed.view(), threads);
    Linear(normed.view(), w.w_up, w.b_up, hidden.view(), &threads);
    const TensorView<float> rows = hidden.view();
    Activate(o.activation, rows.data, rows.size(), rows.data, &threads);
    Linear(hidden.view(), w.w_down, w.b_down, output, &threads);
    AddRows(z.view(), output, Same, threads);
  });
}

}  // namespace heed
