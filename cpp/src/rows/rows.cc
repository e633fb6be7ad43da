// The boundary of the functions of rows.
#include "heed/rows.h"

#include <cmath>
#include <string>

#include "src/message.h"
#include "src/output_spans.h"
#include "src/rows/problem.h"
#include "src/view_checks.h"

namespace heed {
namespace {

void CheckXAndOut(const TensorView<const float>& x, const TensorView<float>& out) {
  CheckInput("x", x);
  CheckOutput("out", out, x.shape, "the shape of x");
}

void CheckAxis(int axis) {
  if (axis >= 0 && axis <= 3) return;
  Fail(ErrorCode::kRange, "axis = {}; expected 0 to 3", {axis});
}

void RunAlong(SoftmaxResult result, const TensorView<const float>& x, const TensorView<float>& out,
              int axis, ThreadPool* pool) {
  CheckXAndOut(x, out);
  OutputSpans({{"out", out}}).ApartFrom("x", x);
  CheckAxis(axis);
  RunRows(SoftmaxProblem{x, out, result, static_cast<size_t>(axis), {}, {}}, pool);
}

void CheckLengths(const TensorView<const float>& x, std::span<const int32_t> lengths) {
  const size_t batch = static_cast<size_t>(x.shape[0]);
  const size_t rows = batch * static_cast<size_t>(x.shape[2]);
  if (!lengths.empty() && lengths.size() != batch && lengths.size() != rows) {
    Fail(ErrorCode::kShape, "lengths has {} values; expected [batch] = {} or [batch, len] = {}",
         {lengths.size(), batch, rows});
  }
  for (const int32_t length : lengths) {
    if (length >= 0 && length <= x.shape[3]) continue;
    Fail(ErrorCode::kRange, "lengths holds {}; expected 0 to dim = {}", {length, x.shape[3]});
  }
}

void CheckVector(std::string_view name, std::span<const float> values, int64_t dim) {
  if (values.empty() || values.size() == static_cast<size_t>(dim)) return;
  Fail(ErrorCode::kShape, "{} has {} values; expected dim = {}", {name, values.size(), dim});
}

void CheckNorm(const TensorView<const float>& x, const RowNormOptions& options,
               const TensorView<float>& out) {
  CheckXAndOut(x, out);
  CheckVector("weight", options.weight, x.shape[3]);
  CheckVector("bias", options.bias, x.shape[3]);
  if (!(options.epsilon > 0) || !std::isfinite(options.epsilon)) {
    Fail(ErrorCode::kRange, "epsilon = {}; it must be positive and finite", {options.epsilon});
  }
}

}  // namespace

void Softmax(TensorView<const float> x, TensorView<float> out, int axis, ThreadPool* pool) {
  RunAlong(SoftmaxResult::kWeights, x, out, axis, pool);
}

void LogSoftmax(TensorView<const float> x, TensorView<float> out, int axis, ThreadPool* pool) {
  RunAlong(SoftmaxResult::kLogs, x, out, axis, pool);
}

void MaskedSoftmax(TensorView<const float> x, const MaskedSoftmaxOptions& options,
                   TensorView<float> out, ThreadPool* pool) {
  CheckXAndOut(x, out);
  CheckLengths(x, options.lengths);
  SoftmaxProblem problem = {x, out, SoftmaxResult::kWeights, 3, options.lengths, {}};
  if (options.keep.has_value()) {
    problem.keep = Broadcast("keep", options.keep, x.shape, "[batch, heads, len, dim] of x");
  }
  OutputSpans({{"out", out}})
      .ApartFrom("x", x)
      .ApartFrom("lengths", options.lengths)
      .ApartFrom("keep", options.keep);
  RunRows(problem, pool);
}

void LayerNorm(TensorView<const float> x, const RowNormOptions& options, TensorView<float> out,
               const RowStatistics& statistics, ThreadPool* pool) {
  CheckNorm(x, options, out);
  const Extents rows = {x.shape[0], x.shape[1], x.shape[2], 1};
  const auto& [mean, inverse_deviation] = statistics;
  if (mean.has_value()) CheckOutput("mean", mean, rows, "[batch, heads, len, 1]");
  if (inverse_deviation.has_value()) {
    CheckOutput("inverse_deviation", inverse_deviation, rows, "[batch, heads, len, 1]");
  }
  OutputSpans({{"out", out}, {"mean", mean}, {"inverse_deviation", inverse_deviation}})
      .MayReplace("x", x)
      .ApartFrom("weight", options.weight)
      .ApartFrom("bias", options.bias);
  RunRows(NormProblem{x, out, NormKind::kLayer, options, statistics}, pool);
}

void RmsNorm(TensorView<const float> x, const RowNormOptions& options, TensorView<float> out,
             ThreadPool* pool) {
  CheckNorm(x, options, out);
  OutputSpans({{"out", out}})
      .MayReplace("x", x)
      .ApartFrom("weight", options.weight)
      .ApartFrom("bias", options.bias);
  RunRows(NormProblem{x, out, NormKind::kRms, options, {}}, pool);
}

}  // namespace heed
