#include "src/gradient/backward_places.h"

#include "src/gradient/request.h"
#include "src/message.h"

namespace heed {
namespace {

bool IsFloats(const AnyTensor& tensor) {
  return tensor.dtype != DType::kUint8 && tensor.dtype != DType::kInt32;
}

bool IsContiguous(const AnyTensor& tensor) {
  int64_t stride = 1;
  for (size_t axis = static_cast<size_t>(tensor.rank); axis-- > 0;) {
    if (tensor.shape[axis] > 1 && tensor.strides[axis] != stride) return false;
    stride *= tensor.shape[axis];
  }
  return true;
}

}  // namespace

void CheckFloat32Inputs(const Request& request) {
  for (const NamedTensor& input : request.inputs) {
    if (!IsFloats(input.tensor) || input.tensor.dtype == DType::kFloat32) continue;
    Fail(ErrorCode::kDType, "{} has element type {}; gradients of \"{}\" are those of float32",
         {input.name, DTypeName(input.tensor.dtype), request.id});
  }
}

std::vector<OutputSpec> FloatInputs(const Request& request) {
  std::vector<OutputSpec> specs;
  for (const auto& [name, tensor] : request.inputs) {
    if (IsFloats(tensor)) specs.push_back({name, tensor.rank, tensor.shape});
  }
  return specs;
}

GradientPlaces::GradientPlaces(std::span<const NamedTensor> tensors) : tensors_(tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.dtype != DType::kFloat32) {
      Fail(ErrorCode::kDType, "gradient \"{}\" has element type {}; expected float32",
           {name, DTypeName(tensor.dtype)});
    }
  }
}

TensorView<float> GradientPlaces::Tensor(std::string_view name) const {
  const AnyTensor* tensor = FindTensor(tensors_, name);
  if (tensor == nullptr) return {};
  if (!IsContiguous(*tensor)) {
    Fail(ErrorCode::kShape, "gradient \"{}\" has strides {}; it must be contiguous",
         {name, tensor->strides});
  }
  Extents shape = {1, 1, 1, 1};
  const size_t rank = static_cast<size_t>(tensor->rank);
  for (size_t axis = 0; axis < rank; ++axis) shape[4 - rank + axis] = tensor->shape[axis];
  return Contiguous(static_cast<float*>(tensor->data), shape[0], shape[1], shape[2], shape[3]);
}

TensorView<float> GradientPlaces::Rows(std::string_view name) const {
  const TensorView<float> view = Tensor(name);
  return Contiguous(view.data, view.shape[1], 1, view.shape[2], view.shape[3]);
}

std::span<float> GradientPlaces::Vector(std::string_view name) const {
  const TensorView<float> view = Tensor(name);
  return {view.data, static_cast<size_t>(view.size())};
}

}  // namespace heed
