#include "native_bench/problem.h"

#include <algorithm>
#include <limits>

#include "heed/registry.h"
#include "native_bench/words.h"

namespace heed::bench {
namespace {

TensorView<float> RankFour(const OwnedTensor& tensor) {
  Extents shape = {1, 1, 1, 1};
  std::copy_backward(tensor.shape().begin(), tensor.shape().end(), shape.end());
  return Contiguous(tensor.floats(), shape[0], shape[1], shape[2], shape[3]);
}

}  // namespace

AnyTensor AsAnyTensor(TensorView<const float> view) {
  return {.dtype = DType::kFloat32,
          .data = const_cast<float*>(view.data),
          .rank = 4,
          .shape = view.shape,
          .strides = view.strides};
}

Problem::Problem(const Case& c, uint64_t seed) : shape_(c) {
  const Mechanism& mechanism = *FindMechanism(c.mechanism);
  const Extent extents = ExtentsOf(c);
  request_.id = c.mechanism;
  for (std::string_view name : ExampleInputs(mechanism)) {
    inputs_.push_back(DrawInput(FindInput(name), extents, seed));
    request_.inputs.push_back({std::string(name), inputs_.back().any()});
  }
  DescribeParams(extents);
  for (const OutputSpec& spec : PlanOutputs(request_)) {
    const auto end = spec.shape.begin() + spec.rank;
    outputs_.emplace_back(spec.name, spec.dtype, std::vector<int64_t>(spec.shape.begin(), end));
    results_.push_back({spec.name, outputs_.back().any()});
  }
}

void Problem::DescribeParams(const Extent& extents) {
  const Mechanism& mechanism = *FindMechanism(shape_.mechanism);
  request_.params = ExampleParams(mechanism, extents);
  if (shape_.mask == Mask::kCausal) request_.params.push_back({"causal", true});
  // Rules of positions want it as soon as the lengths differ.
  if (HasWord(mechanism.params, "query_offset")) {
    request_.params.push_back({"query_offset", static_cast<double>(query_offset())});
  }
}

const OwnedTensor* Problem::input(std::string_view name) const {
  for (const OwnedTensor& tensor : inputs_) {
    if (tensor.name() == name) return &tensor;
  }
  return nullptr;
}

TensorView<const float> Problem::View(std::string_view name) const {
  const TensorView<float> view = RankFour(*input(name));
  return Contiguous<const float>(view.data, view.shape[0], view.shape[1], view.shape[2],
                                 view.shape[3]);
}

TensorView<float> Problem::output() const { return RankFour(outputs_.front()); }

double Problem::width() const {
  for (const NamedParam& param : request_.params) {
    if (param.name == "width") return std::get<double>(param.value);
  }
  return 1;
}

void Problem::FillOutputWithNan() {
  for (const OwnedTensor& tensor : outputs_) {
    std::fill_n(tensor.floats(), tensor.size(), std::numeric_limits<float>::quiet_NaN());
  }
}

}  // namespace heed::bench
