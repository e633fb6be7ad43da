#include "request_builder.h"

#include <deque>
#include <limits>
#include <utility>

#include "heed/registry.h"
#include "oracle_memo.h"

namespace heed::testing {
void RequestBuilder::Add(const std::string& name, DType dtype, void* data,
                         const std::vector<int64_t>& shape) {
  request_.inputs.push_back({name, ContiguousTensor(dtype, data, shape)});
}

RequestBuilder& RequestBuilder::Floats(const std::string& name, std::vector<int64_t> shape,
                                       std::vector<float> values) {
  Add(name, DType::kFloat32, floats_.emplace_back(std::move(values)).data(), shape);
  return *this;
}

RequestBuilder& RequestBuilder::Doubles(const std::string& name, std::vector<int64_t> shape,
                                        std::vector<double> values) {
  Add(name, DType::kFloat64, doubles_.emplace_back(std::move(values)).data(), shape);
  return *this;
}

RequestBuilder& RequestBuilder::Bytes(const std::string& name, std::vector<int64_t> shape,
                                      std::vector<uint8_t> values) {
  Add(name, DType::kUint8, bytes_.emplace_back(std::move(values)).data(), shape);
  return *this;
}

RequestBuilder& RequestBuilder::Integers(const std::string& name, std::vector<int64_t> shape,
                                         std::vector<int32_t> values) {
  Add(name, DType::kInt32, integers_.emplace_back(std::move(values)).data(), shape);
  return *this;
}

RequestBuilder& RequestBuilder::Param(const std::string& name, ParamValue value) {
  request_.params.push_back({name, std::move(value)});
  return *this;
}

Values RunOracle(const Request& request) {
  return Remembered(request, [](const Request& asked) {
    Values values;
    for (reference::Result& result : reference::Run(asked)) {
      values[result.name] = std::move(result.values);
    }
    return values;
  });
}

Values RunByName(const Request& request) {
  std::deque<std::vector<float>> storage;
  std::vector<NamedTensor> outputs;
  for (const OutputSpec& spec : PlanOutputs(request)) {
    const std::vector<int64_t> shape(spec.shape.begin(), spec.shape.begin() + spec.rank);
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    storage.emplace_back(static_cast<size_t>(count), std::numeric_limits<float>::quiet_NaN());
    outputs.push_back({spec.name, ContiguousTensor(DType::kFloat32, storage.back().data(), shape)});
  }
  Run(request, outputs);
  Values values;
  for (size_t n = 0; n < outputs.size(); ++n) {
    values[outputs[n].name] = {storage[n].begin(), storage[n].end()};
  }
  return values;
}

}  // namespace heed::testing
