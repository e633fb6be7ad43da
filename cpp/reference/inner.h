// A request made from another one: how the oracle composes mechanisms.
#ifndef HEED_REFERENCE_INNER_H_
#define HEED_REFERENCE_INNER_H_

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "heed/reference.h"
#include "inputs.h"

namespace heed::reference {

// Starts as a copy of a request under another id, without the names that only the outer mechanism
// knows. Owns the tensors that are put in.
class InnerRequest {
 public:
  InnerRequest(const Request& outer, const std::string& id,
               const std::vector<std::string_view>& without);

  // Puts a contiguous float64 input in, in place of one of the same name.
  void SetInput(const std::string& name, int rank, const Extents& shape,
                std::vector<double> values);
  void SetInput(const std::string& name, const Array& array);
  // Bytes [batch, num_heads, q_len, kv_len].
  void SetKeep(const Extents& shape, std::vector<uint8_t> keep);
  void SetParam(const std::string& name, ParamValue value);

  // The result of this name, which the request asks for.
  std::vector<double> Run(std::string_view result = "output") const;
  std::vector<Result> RunAll() const { return reference::Run(request_); }
  const Request& request() const { return request_; }

 private:
  Request request_;
  // Puts a contiguous rank-4 or smaller input in, in place of one of the same name.
  void Set(const std::string& name, DType dtype, const void* data, int rank, const Extents& shape);

  std::deque<std::vector<double>> memory_;
  std::deque<std::vector<uint8_t>> bytes_;
};

// The values of a result by name.
const std::vector<double>& Values(const std::vector<Result>& results, std::string_view name);

// A part [first, first + width) of the last dimension.
Array Columns(const Array& array, int64_t first, int64_t width);

}  // namespace heed::reference

#endif  // HEED_REFERENCE_INNER_H_
