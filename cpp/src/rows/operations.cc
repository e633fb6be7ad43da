#include "src/rows/operations.h"

#include <algorithm>
#include <string>

#include "heed/rows.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

const AnyTensor& RequiredX(const RequestReader& reader) {
  const AnyTensor* x = reader.Input("x");
  if (x == nullptr) Fail(ErrorCode::kOption, "input x is missing");
  if (x->rank < 1) Fail(ErrorCode::kShape, "x has rank 0; expected 1 to 4");
  return *x;
}

// `axis` as an index into the extents of x; negative ones count from the end.
int ReadAxis(const RequestReader& reader, const AnyTensor& x) {
  const int64_t axis = reader.Count("axis").value_or(-1);
  if (axis < -x.rank || axis >= x.rank) {
    Fail(ErrorCode::kRange, "axis = {}; x has rank {}, expected {} to {}",
         {axis, x.rank, -x.rank, x.rank - 1});
  }
  return static_cast<int>(axis < 0 ? axis + x.rank : axis);
}

// An output of rank 4 in memory that has no gaps.
TensorView<float> OutputLike(const NamedTensor& output, const Extents& shape) {
  return Contiguous(static_cast<float*>(output.tensor.data), shape[0], shape[1], shape[2],
                    shape[3]);
}

using Along = void (*)(TensorView<const float>, TensorView<float>, int, ThreadPool*);

void RunAlong(Along function, const RequestReader& reader, NamedTensors outputs, ThreadPool* pool) {
  const AnyTensor& x = RequiredX(reader);
  const TensorView<const float> view = reader.FloatTensor("x");
  function(view, OutputLike(outputs[0], view.shape), ReadAxis(reader, x) + 4 - x.rank, pool);
}

// Extents or strides of rank `rank`, of which the last ones are in the last places of `four`, as
// [batch, heads, rows, dim]: what is missing has the value `absent`.
Extents AsRows(const Extents& four, int rank, int64_t absent) {
  Extents rows = {absent, absent, absent, four[3]};
  if (rank >= 2) rows[0] = four[static_cast<size_t>(4 - rank)];
  if (rank >= 3) rows[2] = four[2];
  if (rank == 4) rows[1] = four[1];
  return rows;
}

// A tensor that ranks with x: [batch, dim], [batch, rows, dim] or [batch, heads, rows, dim].
template <class T>
TensorView<T> AsRows(const TensorView<T>& view, int rank) {
  return {view.data, AsRows(view.shape, rank, 1), AsRows(view.strides, rank, 0)};
}

std::span<const int32_t> ReadLengths(const RequestReader& reader, const Extents& rows) {
  const std::span<const int32_t> lengths = reader.Ints("lengths");
  const AnyTensor* tensor = reader.Input("lengths");
  if (tensor == nullptr) return lengths;
  const bool per_entry = tensor->rank == 1 && tensor->shape[0] == rows[0];
  const bool per_row =
      tensor->rank == 2 && tensor->shape[0] == rows[0] && tensor->shape[1] == rows[2];
  if (per_entry || per_row) return lengths;
  Fail(ErrorCode::kShape, "lengths must have the shape [batch] or [batch, rows], here [{}, {}]",
       {rows[0], rows[2]});
}

// x with all extents from an axis on as one, and what belongs to them.
struct NormRequest {
  TensorView<const float> x;  // [1, 1, rows, dim]
  Extents statistics{};       // extents of x with 1 from the axis on
  int rank = 0;
  RowNormOptions options;
};

std::span<const float> ReadFactors(const RequestReader& reader, std::string_view name,
                                   const AnyTensor& x, int axis) {
  const AnyTensor* tensor = reader.Input(name);
  if (tensor == nullptr) return {};
  bool same = tensor->rank == x.rank - axis;
  for (int n = 0; same && n < tensor->rank; ++n) {
    same = tensor->shape[static_cast<size_t>(n)] == x.shape[static_cast<size_t>(axis + n)];
  }
  if (!same) {
    Fail(ErrorCode::kShape, "{} must have the extents of x from axis {} on", {name, axis});
  }
  return reader.Floats(name);
}

NormRequest ReadNorm(const RequestReader& reader) {
  const AnyTensor& x = RequiredX(reader);
  const int axis = ReadAxis(reader, x);
  NormRequest r;
  r.rank = x.rank;
  int64_t rows = 1, dim = 1;
  for (int n = 0; n < x.rank; ++n) {
    const int64_t extent = x.shape[static_cast<size_t>(n)];
    (n < axis ? rows : dim) *= extent;
    r.statistics[static_cast<size_t>(n)] = n < axis ? extent : 1;
  }
  // Refuses gaps: rows of several axes must lie in one piece.
  r.x = Contiguous(reader.Floats("x").data(), 1, 1, rows, dim);
  r.options.weight = ReadFactors(reader, "weight", x, axis);
  if (reader.Takes("bias")) r.options.bias = ReadFactors(reader, "bias", x, axis);
  if (const auto epsilon = reader.Number("epsilon")) r.options.epsilon = *epsilon;
  return r;
}

}  // namespace

std::vector<OutputSpec> PlanSoftmax(const RequestReader& reader) {
  const AnyTensor& x = RequiredX(reader);
  ReadAxis(reader, x);
  return {{"output", x.rank, x.shape}};
}

void RunSoftmax(const RequestReader& reader, NamedTensors outputs, ThreadPool* pool) {
  RunAlong(Softmax, reader, outputs, pool);
}

void RunLogSoftmax(const RequestReader& reader, NamedTensors outputs, ThreadPool* pool) {
  RunAlong(LogSoftmax, reader, outputs, pool);
}

std::vector<OutputSpec> PlanMaskedSoftmax(const RequestReader& reader) {
  const AnyTensor& x = RequiredX(reader);
  return {{"output", x.rank, x.shape}};
}

void RunMaskedSoftmax(const RequestReader& reader, NamedTensors outputs, ThreadPool* pool) {
  const AnyTensor& x = RequiredX(reader);
  const TensorView<const float> view = AsRows(reader.FloatTensor("x"), x.rank);
  MaskedSoftmaxOptions options;
  options.lengths = ReadLengths(reader, view.shape);
  if (const AnyTensor* keep = reader.Input("keep")) {
    if (keep->rank > x.rank) {
      Fail(ErrorCode::kShape, "keep has rank {}; expected at most that of x, {}",
           {keep->rank, x.rank});
    }
    options.keep = AsRows(reader.ByteTensor("keep"), x.rank);
  }
  MaskedSoftmax(view, options, OutputLike(outputs[0], view.shape), pool);
}

std::vector<OutputSpec> PlanLayerNorm(const RequestReader& reader) {
  const NormRequest r = ReadNorm(reader);
  std::vector<OutputSpec> specs = {{"output", r.rank, RequiredX(reader).shape}};
  if (!reader.Flag("return_statistics")) return specs;
  specs.push_back({"mean", r.rank, r.statistics});
  specs.push_back({"inverse_deviation", r.rank, r.statistics});
  return specs;
}

void RunLayerNorm(const RequestReader& reader, NamedTensors outputs, ThreadPool* pool) {
  const NormRequest r = ReadNorm(reader);
  RowStatistics statistics;
  if (outputs.size() == 3) {
    const Extents rows = {1, 1, r.x.shape[2], 1};
    statistics = {OutputLike(outputs[1], rows), OutputLike(outputs[2], rows)};
  }
  LayerNorm(r.x, r.options, OutputLike(outputs[0], r.x.shape), statistics, pool);
}

std::vector<OutputSpec> PlanRmsNorm(const RequestReader& reader) {
  return {{"output", ReadNorm(reader).rank, RequiredX(reader).shape}};
}

void RunRmsNorm(const RequestReader& reader, NamedTensors outputs, ThreadPool* pool) {
  const NormRequest r = ReadNorm(reader);
  RmsNorm(r.x, r.options, OutputLike(outputs[0], r.x.shape), pool);
}

}  // namespace heed
