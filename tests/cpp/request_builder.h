// Builds requests from literal numbers, and runs them by name on the oracle and on the library.
#ifndef HEED_TESTS_REQUEST_BUILDER_H_
#define HEED_TESTS_REQUEST_BUILDER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "heed/reference.h"
#include "heed/request.h"

namespace heed::testing {

// A request that owns what its tensors point to. Tensors are contiguous.
class RequestBuilder {
 public:
  explicit RequestBuilder(std::string id) { request_.id = std::move(id); }

  RequestBuilder& Floats(const std::string& name, std::vector<int64_t> shape,
                         std::vector<float> values);
  RequestBuilder& Doubles(const std::string& name, std::vector<int64_t> shape,
                          std::vector<double> values);
  RequestBuilder& Bytes(const std::string& name, std::vector<int64_t> shape,
                        std::vector<uint8_t> values);
  RequestBuilder& Integers(const std::string& name, std::vector<int64_t> shape,
                           std::vector<int32_t> values);
  RequestBuilder& Param(const std::string& name, ParamValue value);

  const Request& request() const { return request_; }

 private:
  void Add(const std::string& name, DType dtype, void* data, const std::vector<int64_t>& shape);

  Request request_;
  // Deques: the addresses of their elements stay when more are added.
  std::deque<std::vector<float>> floats_;
  std::deque<std::vector<double>> doubles_;
  std::deque<std::vector<uint8_t>> bytes_;
  std::deque<std::vector<int32_t>> integers_;
};

// Results by name.
using Values = std::map<std::string, std::vector<double>>;

// What the oracle returns; on several SIMD targets it is asked once.
Values RunOracle(const Request& request);

// What heed::PlanOutputs and heed::Run return; outputs are filled with NaN first.
Values RunByName(const Request& request);

}  // namespace heed::testing

#endif  // HEED_TESTS_REQUEST_BUILDER_H_
