#include "src/gradient/backward_views.h"

#include <string>
#include <vector>

#include "src/gradient/request.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

ViewSpan SpanOfTensor(const NamedTensor& named) {
  const AnyTensor& tensor = named.tensor;
  Extents shape = {1, 1, 1, 1}, strides = {};
  for (size_t axis = 0; axis < static_cast<size_t>(tensor.rank); ++axis) {
    shape[axis] = tensor.shape[axis];
    strides[axis] = tensor.strides[axis];
  }
  return SpanOf(tensor.data, shape, strides, static_cast<size_t>(ElementSize(tensor.dtype)));
}

}  // namespace

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

void CheckLieApart(const Request& request, std::span<const NamedTensor> d_results,
                   std::span<const NamedTensor> gradients) {
  for (size_t n = 0; n < gradients.size(); ++n) {
    const std::string name = Join("the gradient of \"{}\"", {gradients[n].name});
    const TensorView<float> view = LeadingViewOf(&gradients[n].tensor);
    CheckOutput(name, StoredOutput(view), view.shape, "as the input");
    const ViewSpan span = SpanOf(view);
    for (const NamedTensor& input : request.inputs) {
      CheckNoAlias(name, span, input.name, SpanOfTensor(input));
    }
    for (const NamedTensor& arriving : d_results) {
      CheckNoAlias(name, span, Join("what arrives at \"{}\"", {arriving.name}),
                   SpanOfTensor(arriving));
    }
    for (size_t m = 0; m < n; ++m) {
      CheckNoAlias(name, span, gradients[m].name, SpanOfTensor(gradients[m]));
    }
  }
}

}  // namespace heed
