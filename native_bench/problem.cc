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
  const std::vector<std::string_view> names = ExampleInputs(mechanism);
  for (std::string_view name : names) AddInput(name, extents, seed);
  if (c.sinks && std::find(names.begin(), names.end(), "sinks") == names.end()) {
    AddInput("sinks", extents, seed);
  }
  DescribeParams(extents);
  widened_ = request_;
  for (NamedTensor& entry : widened_.inputs) entry.tensor = input(entry.name)->any();
  for (const OutputSpec& spec : PlanOutputs(request_)) {
    const auto end = spec.shape.begin() + spec.rank;
    outputs_.emplace_back(spec.name, spec.dtype, std::vector<int64_t>(spec.shape.begin(), end));
    results_.push_back({spec.name, outputs_.back().any()});
  }
}

void Problem::AddInput(std::string_view name, const Extent& extents, uint64_t seed) {
  inputs_.push_back(DrawInput(FindInput(name), extents, seed));
  AnyTensor tensor = inputs_.back().any();
  if (shape_.dtype != DType::kFloat32 && (name == "q" || name == "k" || name == "v")) {
    halves_.push_back(StoredAs(inputs_.back(), shape_.dtype));
    tensor = halves_.back().any();
  }
  request_.inputs.push_back({std::string(name), tensor});
}

void Problem::DescribeParams(const Extent& extents) {
  const Mechanism& mechanism = *FindMechanism(shape_.mechanism);
  request_.params = ExampleParams(mechanism, extents);
  if (shape_.mask == Mask::kCausal) request_.params.push_back({"causal", true});
  if (shape_.window_left.has_value()) {
    request_.params.push_back({"window_left", static_cast<double>(*shape_.window_left)});
  }
  if (shape_.softcap.has_value()) request_.params.push_back({"softcap", *shape_.softcap});
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

const AnyTensor& Problem::stored(std::string_view name) const {
  const auto found = std::find_if(request_.inputs.begin(), request_.inputs.end(),
                                  [&](const NamedTensor& entry) { return entry.name == name; });
  return found->tensor;
}

float Problem::OutputAt(int64_t index) const {
  const OwnedTensor& output = outputs_.front();
  switch (output.any().dtype) {
    case DType::kFloat16:
      return ToFloat(Float16{output.halves()[index]});
    case DType::kBFloat16:
      return ToFloat(BFloat16{output.halves()[index]});
    default:
      return output.floats()[index];
  }
}

TensorView<float> Problem::output() const { return RankFour(outputs_.front()); }

std::pair<int64_t, int64_t> Problem::VisibleKeys(int64_t i) const {
  const int64_t kv_len = shape_.lengths.kv_len;
  const int64_t position = i + query_offset();
  const int64_t begin = shape_.window_left ? position - *shape_.window_left : 0;
  const int64_t end = shape_.mask == Mask::kCausal ? position + 1 : kv_len;
  const int64_t first = std::clamp<int64_t>(begin, 0, kv_len);
  return {first, std::clamp<int64_t>(end, first, kv_len)};
}

const float* Problem::sink(int64_t head) const {
  const OwnedTensor* sinks = shape_.sinks ? input("sinks") : nullptr;
  return sinks == nullptr ? nullptr : sinks->floats() + head;
}

double Problem::width() const {
  for (const NamedParam& param : request_.params) {
    if (param.name == "width") return std::get<double>(param.value);
  }
  return 1;
}

void Problem::FillOutputWithNan() {
  for (const OwnedTensor& tensor : outputs_) {
    if (ElementSize(tensor.any().dtype) == 2) {
      constexpr uint16_t kNan = 0x7fff;  // of float16 and of bfloat16
      std::fill_n(tensor.halves(), tensor.size(), kNan);
    } else {
      std::fill_n(tensor.floats(), tensor.size(), std::numeric_limits<float>::quiet_NaN());
    }
  }
}

}  // namespace heed::bench
