// Random calls of the position family by name: strided tensors, any parameters, both sides.
#ifndef HEED_TESTS_POSITION_POSITION_CASE_H_
#define HEED_TESTS_POSITION_POSITION_CASE_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "buffer.h"
#include "gtest/gtest.h"
#include "heed/reference.h"
#include "heed/registry.h"
#include "random.h"

namespace heed::testing {

inline constexpr float kNanFloat = std::numeric_limits<float>::quiet_NaN();

inline Buffer<float> RandomBuffer(const Extents& shape, Layout layout, uint64_t seed) {
  Buffer<float> buffer(shape, layout, kNanFloat);
  Random random(seed);
  buffer.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& e) { e = random.Normal(); });
  return buffer;
}

// A call on x: what the library and the oracle make of it.
class PositionCase {
 public:
  PositionCase(std::string id, const Extents& shape, Layout layout, uint64_t seed)
      : x_(RandomBuffer(shape, layout, seed)), output_(shape, layout, kNanFloat) {
    request_.id = std::move(id);
    request_.inputs.push_back({"x", x_.any(DType::kFloat32)});
  }

  PositionCase& Param(const std::string& name, ParamValue value) {
    request_.params.push_back({name, std::move(value)});
    return *this;
  }
  PositionCase& Input(const std::string& name, const AnyTensor& tensor) {
    request_.inputs.push_back({name, tensor});
    return *this;
  }
  // [len] or [batch, len].
  PositionCase& Positions(std::vector<int32_t> rows, bool per_batch) {
    rows_ = std::move(rows);
    const int64_t len = x_.shape()[2];
    AnyTensor tensor = {DType::kInt32, rows_.data(), per_batch ? 2 : 1, {len}, {1}};
    if (per_batch) tensor.shape = {x_.shape()[0], len}, tensor.strides = {len, 1};
    return Input("positions", tensor);
  }

  Buffer<float>& x() { return x_; }
  Buffer<float>& output() { return output_; }
  const Request& request() const { return request_; }

  void Run() {
    const NamedTensor outputs[] = {{"output", output_.any(DType::kFloat32)}};
    heed::Run(request_, outputs);
  }
  std::vector<double> Oracle() const { return reference::Run(request_).front().values; }

  // Runs both; every element is within `bound(b, h, i, d, expected)`.
  template <typename Bound>
  void ExpectMatch(Bound&& bound) {
    Run();
    const std::vector<double> expected = Oracle();
    EXPECT_TRUE(output_.GapsAreUntouched());
    size_t at = 0;
    output_.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float y) {
      const double wanted = expected[at++];
      ASSERT_LE(std::abs(y - wanted), bound(b, h, i, d, wanted))
          << request_.id << " at [" << b << ", " << h << ", " << i << ", " << d << "]: " << y
          << ", wanted " << wanted;
    });
  }

 private:
  Buffer<float> x_, output_;
  std::vector<int32_t> rows_;
  Request request_;
};

}  // namespace heed::testing

#endif  // HEED_TESTS_POSITION_POSITION_CASE_H_
