#include "src/gradient/backward_views.h"

#include <string>
#include <vector>

#include "src/gradient/request.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {

TensorView<float> ViewOf(const AnyTensor* tensor, const std::array<int, 4>& axes) {
  if (tensor == nullptr) return {};
  TensorView<float> view = {static_cast<float*>(tensor->data), {1, 1, 1, 1}, {0, 0, 0, 1}};
  for (size_t axis = 0; axis < 4; ++axis) {
    if (axes[axis] < 0) continue;
    const size_t from = static_cast<size_t>(axes[axis]);
    view.shape[axis] = tensor->shape[from];
    view.strides[axis] = tensor->strides[from];
  }
  return view;
}

TensorView<float> LeadingViewOf(const AnyTensor* tensor) {
  if (tensor == nullptr) return {};
  std::array<int, 4> axes = {-1, -1, -1, -1};
  for (int axis = 0; axis < tensor->rank; ++axis) {
    axes[static_cast<size_t>(4 - tensor->rank + axis)] = axis;
  }
  return ViewOf(tensor, axes);
}

std::span<float> VectorOf(const AnyTensor* tensor) {
  if (tensor == nullptr) return {};
  const TensorView<float> view = LeadingViewOf(tensor);
  return {view.data, static_cast<size_t>(view.size())};
}

std::vector<OutputSpec> GradientsOf(const Request& request,
                                    std::initializer_list<std::string_view> names) {
  std::vector<OutputSpec> gradients;
  for (const std::string_view name : names) {
    const AnyTensor* input = FindTensor(request.inputs, name);
    if (input == nullptr) continue;
    gradients.push_back({std::string(name), input->rank, input->shape});
  }
  return gradients;
}

void CheckAreFloats(std::span<const NamedTensor> d_results,
                    std::span<const NamedTensor> gradients) {
  for (const std::span<const NamedTensor> tensors : {d_results, gradients}) {
    for (const NamedTensor& tensor : tensors) {
      if (tensor.tensor.dtype == DType::kFloat32) continue;
      Fail(ErrorCode::kDType, "gradient \"{}\" has element type {}; expected float32",
           {tensor.name, DTypeName(tensor.tensor.dtype)});
    }
  }
}

void CheckAreRows(std::span<const NamedTensor> gradients) {
  for (const NamedTensor& gradient : gradients) {
    const TensorView<float> view = LeadingViewOf(&gradient.tensor);
    CheckOutput(Join("the gradient of \"{}\"", {gradient.name}), StoredOutput(view), view.shape,
                "as the input");
  }
}

}  // namespace heed
