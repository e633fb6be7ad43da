#include "src/layers/request.h"

#include <string>

#include "src/message.h"
#include "src/view_checks.h"

namespace heed {

TensorView<const float> ReadWeight(const RequestReader& reader, std::string_view name, int rank) {
  const AnyTensor* tensor = reader.Input(name);
  if (tensor != nullptr && tensor->rank != rank) {
    Fail(ErrorCode::kShape, "{} has rank {}; expected {}", {name, tensor->rank, rank});
  }
  return reader.FloatTensor(name);
}

TensorView<const float> ReadRequiredWeight(const RequestReader& reader, std::string_view name,
                                           int rank) {
  if (reader.Input(name) == nullptr) {
    Fail(ErrorCode::kOption, "input {} is missing", {name});
  }
  return ReadWeight(reader, name, rank);
}

TensorView<const float> ReadRows(const RequestReader& reader, std::string_view name) {
  const TensorView<const float> view = ReadRequiredWeight(reader, name, 3);
  return {view.data,
          {view.shape[1], 1, view.shape[2], view.shape[3]},
          {view.strides[1], 0, view.strides[2], view.strides[3]}};
}

TensorView<float> RowsOutput(std::span<const NamedTensor> outputs, std::string_view name) {
  const TensorView<float> view = OutputView(outputs, name);
  return {view.data,
          {view.shape[0], 1, view.shape[1], view.shape[2]},
          {view.strides[0], 0, view.strides[1], view.strides[2]}};
}

}  // namespace heed
