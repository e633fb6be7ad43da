#include "inner.h"

#include <algorithm>
#include <utility>

namespace heed::reference {
namespace {

template <typename Named>
void Erase(std::vector<Named>& list, std::string_view name) {
  std::erase_if(list, [name](const Named& entry) { return entry.name == name; });
}

}  // namespace

InnerRequest::InnerRequest(const Request& outer, const std::string& id,
                           const std::vector<std::string_view>& without)
    : request_(outer) {
  request_.id = id;
  for (const std::string_view name : without) {
    Erase(request_.inputs, name);
    Erase(request_.params, name);
  }
}

void InnerRequest::SetInput(const std::string& name, int rank, const Extents& shape,
                            std::vector<double> values) {
  Set(name, DType::kFloat64, memory_.emplace_back(std::move(values)).data(), rank, shape);
}

void InnerRequest::SetKeep(const Extents& shape, std::vector<uint8_t> keep) {
  Set("keep", DType::kUint8, bytes_.emplace_back(std::move(keep)).data(), 4, shape);
}

void InnerRequest::Set(const std::string& name, DType dtype, const void* data, int rank,
                       const Extents& shape) {
  Erase(request_.inputs, name);
  AnyTensor tensor;
  tensor.dtype = dtype;
  tensor.data = const_cast<void*>(data);
  if (data == nullptr) tensor.data = &tensor;  // no elements, but not absent
  tensor.rank = rank;
  int64_t stride = 1;
  for (int axis = rank - 1; axis >= 0; --axis) {
    tensor.shape[axis] = shape[axis];
    tensor.strides[axis] = stride;
    stride *= shape[axis];
  }
  request_.inputs.push_back({name, tensor});
}

void InnerRequest::SetInput(const std::string& name, const Array& array) {
  SetInput(name, 4, array.shape, array.values);
}

void InnerRequest::SetParam(const std::string& name, ParamValue value) {
  Erase(request_.params, name);
  request_.params.push_back({name, std::move(value)});
}

std::vector<double> InnerRequest::Run(std::string_view result) const {
  return Values(RunAll(), result);
}

const std::vector<double>& Values(const std::vector<Result>& results, std::string_view name) {
  return std::ranges::find(results, name, &Result::name)->values;
}

Array Columns(const Array& array, int64_t first, int64_t width) {
  Array part;
  part.shape = array.shape;
  part.shape[3] = width;
  const int64_t all = array.shape[3];
  for (int64_t at = first; at < static_cast<int64_t>(array.values.size()); at += all) {
    part.values.insert(part.values.end(), array.values.begin() + at,
                       array.values.begin() + at + width);
  }
  return part;
}

}  // namespace heed::reference
