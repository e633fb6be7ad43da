// Differential attention: two maps by two calls of the exact loop, then their difference and the
// sub-norm, row by row.
#include "src/compose/differential.h"

#include <cmath>
#include <string>

#include "src/compose/checks.h"
#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/exact/attention_spans.h"
#include "src/memory_errors.h"
#include "src/message.h"

namespace heed {
namespace {

// row -= lambda * other.
void Subtract(float lambda, const float* other, int64_t width, float* row) {
  for (int64_t d = 0; d < width; ++d) row[d] -= lambda * other[d];
}

// In double: squares of large floats stay finite, and a row costs nothing beside its attention.
void Normalise(const DifferentialOptions& o, int64_t width, float* row) {
  if (o.sub_norm == SubNorm::kNone) return;
  double sum = 0;
  for (int64_t d = 0; d < width; ++d) sum += static_cast<double>(row[d]) * row[d];
  const double mean = sum / static_cast<double>(width);
  const double factor = (1 - o.lambda_init) / std::sqrt(mean + o.epsilon);
  for (int64_t d = 0; d < width; ++d) {
    const double weight = o.norm_weight.empty() ? 1 : o.norm_weight[static_cast<size_t>(d)];
    row[d] = static_cast<float>(row[d] * factor * weight);
  }
}

}  // namespace

float LambdaOf(const DifferentialOptions& o, int64_t head) {
  if (o.lambda.empty()) return static_cast<float>(o.lambda_init);
  return o.lambda[o.lambda.size() == 1 ? 0 : static_cast<size_t>(head)];
}

Halves Halved(std::string_view name, const TensorView<const float>& both) {
  const int64_t width = both.shape[3];
  if (width % 2 != 0 || width < 0) {
    Fail(ErrorCode::kShape, "{} has head_dim {}; it must be even: two halves of equal size",
         {name, width});
  }
  Halves halves = {both, both};
  halves.first.shape[3] = halves.second.shape[3] = width / 2;
  if (both.data != nullptr) halves.second.data += width / 2 * both.strides[3];
  return halves;
}

void ValidateDifferential(const TensorView<const float>& q, const TensorView<const float>& k,
                          const TensorView<const float>& v, const DifferentialOptions& o,
                          const AttentionOutputs& outputs) {
  if (outputs.lse.has_value() || outputs.scores.has_value()) {
    Fail(ErrorCode::kUnsupported,
         "differential attention has two maps, hence no one lse and no one score; ask for weights, "
         "which are their difference");
  }
  RefuseTiles(outputs, "a difference of two maps");
  Halved("q", q);
  Halved("k", k);
  if (o.lambda.size() != 1) {
    CheckValueCount("lambda", o.lambda.size(), q.shape[1], "one per head, or one for all");
  }
  CheckAllFinite("lambda", o.lambda);
  CheckValueCount("norm_weight", o.norm_weight.size(), v.shape[3], "head_dim_v");
  CheckAllFinite("norm_weight", o.norm_weight);
  CheckEnum("sub_norm", o.sub_norm, SubNorm::kNone);
  if (!(o.lambda_init >= 0) || !(o.lambda_init <= 1)) {
    Fail(ErrorCode::kRange, "lambda_init = {}; it lies in [0, 1]", {o.lambda_init});
  }
  if (!(o.epsilon > 0) || !std::isfinite(o.epsilon)) {
    Fail(ErrorCode::kRange, "epsilon = {}; it must be positive and finite", {o.epsilon});
  }
}

void DifferentialAttention(TensorView<const float> q, TensorView<const float> k,
                           TensorView<const float> v, const DifferentialOptions& options,
                           const AttentionOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("differential attention", [&] {
    ValidateDifferential(q, k, v, options, outputs);
    const Halves queries = Halved("q", q);
    const Halves keys = Halved("k", k);
    ValidateComposed(queries.first, keys.first, v, options.attention, outputs);
    SpansOf(outputs)
        .ApartFrom("q", q)
        .ApartFrom("k", k)
        .ApartFrom("lambda", options.lambda)
        .ApartFrom("norm_weight", options.norm_weight);

    // The second map first: whatever fails, fails before the caller's memory is written.
    const OwnedTensor other(outputs.output.shape);
    const OwnedTensor other_weights =
        outputs.weights.has_value() ? OwnedTensor(outputs.weights.shape) : OwnedTensor();
    AttentionOutputs second;
    second.output = other.view();
    second.weights = other_weights.view();
    Attention(queries.second, keys.second, v, options.attention, second, pool);
    Attention(queries.first, keys.first, v, options.attention, outputs, pool);

    ForEachRow(outputs.output.shape, PoolOrDefault(pool), [&](int64_t b, int64_t h, int64_t i) {
      const float lambda = LambdaOf(options, h);
      const auto rows = [&](const TensorView<float>& to, const TensorView<float>& from) {
        if (!to.has_value() || to.shape[3] == 0) return;
        Subtract(lambda, &from(b, h, i, 0), to.shape[3], &to(b, h, i, 0));
      };
      rows(outputs.output, second.output);
      rows(outputs.weights, second.weights);
      if (outputs.output.shape[3] == 0) return;
      Normalise(options, outputs.output.shape[3], &outputs.output(b, h, i, 0));
    });
  });
}

double DifferentialLambdaInit(int64_t layer) {
  if (layer < 1) {
    Fail(ErrorCode::kRange, "layer = {}; layers count from 1", {layer});
  }
  return 0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(layer - 1));
}

float DifferentialLambda(std::span<const float> q1, std::span<const float> k1,
                         std::span<const float> q2, std::span<const float> k2, double lambda_init) {
  if (q1.size() != k1.size() || q2.size() != k2.size() || q1.size() != q2.size()) {
    Fail(ErrorCode::kShape,
         "the vectors of lambda have {}, {}, {} and {} values; expected the same number",
         {q1.size(), k1.size(), q2.size(), k2.size()});
  }
  const auto dot = [](std::span<const float> a, std::span<const float> b) {
    double sum = 0;
    for (size_t n = 0; n < a.size(); ++n) sum += static_cast<double>(a[n]) * b[n];
    return sum;
  };
  return static_cast<float>(std::exp(dot(q1, k1)) - std::exp(dot(q2, k2)) + lambda_init);
}

}  // namespace heed
