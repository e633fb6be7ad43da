#include "src/linear/operations.h"

#include <algorithm>
#include <string>

#include "heed/linear.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

TensorView<const float> Required(const RequestReader& reader, std::string_view name) {
  const AnyTensor* tensor = reader.Input(name);
  if (tensor == nullptr) Fail(ErrorCode::kOption, "input {} is missing", {name});
  if (tensor->rank < 2) {
    Fail(ErrorCode::kShape, "{} has rank {}; expected 2 to 4", {name, tensor->rank});
  }
  return reader.FloatTensor(name);
}

// A result of this rank: the last extents of `shape`.
std::vector<OutputSpec> Output(int rank, const Extents& shape) {
  OutputSpec spec = {"output", rank, {}};
  std::copy(shape.end() - rank, shape.end(), spec.shape.begin());
  return {spec};
}

// Results are contiguous.
TensorView<float> OutputOf(std::span<const NamedTensor> outputs, const Extents& shape) {
  return Contiguous(static_cast<float*>(outputs[0].tensor.data), shape[0], shape[1], shape[2],
                    shape[3]);
}

Extents LinearShape(const RequestReader& reader) {
  Extents shape = Required(reader, "x").shape;
  shape[3] = Required(reader, "weight").shape[2];
  return shape;
}

// b, or its transpose in the last two extents.
TensorView<const float> SecondOf(const RequestReader& reader) {
  const TensorView<const float> b = Required(reader, "b");
  return reader.Flag("transpose_b") ? TransposedView(b) : b;
}

Extents BmmShape(const RequestReader& reader) {
  const Extents a = Required(reader, "a").shape, b = SecondOf(reader).shape;
  return {a[0] == 1 ? b[0] : a[0], a[1] == 1 ? b[1] : a[1], a[2], b[3]};
}

int BmmRank(const RequestReader& reader) {
  return std::max(reader.Input("a")->rank, reader.Input("b")->rank);
}

}  // namespace

std::vector<OutputSpec> PlanLinear(const RequestReader& reader) {
  const Extents shape = LinearShape(reader);
  return Output(reader.Input("x")->rank, shape);
}

void RunLinear(const RequestReader& reader, std::span<const NamedTensor> outputs,
               ThreadPool* pool) {
  Linear(Required(reader, "x"), Required(reader, "weight"), reader.Floats("bias"),
         OutputOf(outputs, LinearShape(reader)), pool);
}

std::vector<OutputSpec> PlanBmm(const RequestReader& reader) {
  const Extents shape = BmmShape(reader);
  return Output(BmmRank(reader), shape);
}

void RunBmm(const RequestReader& reader, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  Bmm(Required(reader, "a"), SecondOf(reader), OutputOf(outputs, BmmShape(reader)), pool);
}

}  // namespace heed
