// Requests: a mechanism by name with named tensors and parameters. What JavaScript, the benchmark
// and the tests speak; C++ callers have the typed functions.
#ifndef HEED_REQUEST_H_
#define HEED_REQUEST_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "heed/dtype.h"
#include "heed/error.h"
#include "heed/tensor.h"

namespace heed {

// A tensor of rank 0 to 4 whose element type is known at run time. Only the first `rank` entries of
// shape and strides count; strides in elements.
struct AnyTensor {
  DType dtype = DType::kFloat32;
  void* data = nullptr;
  int rank = 0;
  Extents shape{};
  Extents strides{};
};

// Views contiguous memory, the last of up to four extents running fastest. A tensor of more, which
// no mechanism takes, keeps its rank and no extents.
inline AnyTensor ContiguousTensor(DType dtype, void* data, std::span<const int64_t> shape) {
  AnyTensor tensor = {dtype, data, static_cast<int>(shape.size()), {}, {}};
  if (shape.size() > tensor.shape.size()) return tensor;
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) {
    tensor.shape[axis] = shape[axis];
    tensor.strides[axis] = stride;
  }
  return tensor;
}

struct NamedTensor {
  std::string name;
  AnyTensor tensor;
};

// A parameter is a flag, a number, a word or a list of numbers.
using ParamValue = std::variant<bool, double, std::string, std::vector<double>>;

struct NamedParam {
  std::string name;
  ParamValue value;
};

// One call of a mechanism. Names are the snake_case words of mechanisms.inc. Inputs q, k, v are
// rank 4, [batch, heads, len, dim] after strides; the row's `inputs` and `params` list the rest.
struct Request {
  std::string id;
  std::vector<NamedTensor> inputs;
  std::vector<NamedParam> params;
};

// A result that a request produces: the caller allocates it before `Run`.
struct OutputSpec {
  std::string name;
  int rank = 0;
  Extents shape{};
  DType dtype = DType::kFloat32;
};

}  // namespace heed

#endif  // HEED_REQUEST_H_
