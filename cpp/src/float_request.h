// Requests whose queries, keys and values are stored in two bytes, for mechanisms that read floats.
#ifndef HEED_SRC_FLOAT_REQUEST_H_
#define HEED_SRC_FLOAT_REQUEST_H_

#include <span>
#include <vector>

#include "heed/request.h"

namespace heed {

// The request with float copies of q, k and v, and of the keys and values of branches, where they
// are float16 or bfloat16, O(their size) memory. The request must outlive it. Throws
// Error(kMemory).
class FloatRequest {
 public:
  explicit FloatRequest(const Request& request);
  ~FloatRequest();
  FloatRequest(const FloatRequest&) = delete;
  FloatRequest& operator=(const FloatRequest&) = delete;

  const Request& get() const { return copies_.empty() ? given_ : floats_; }
  bool has_copies() const { return !copies_.empty(); }
  // What the output is stored as: the type of q, or of v where there is no q.
  DType output_dtype() const { return output_dtype_; }

 private:
  void Count(int sign) const;

  const Request& given_;
  Request floats_;
  std::vector<std::vector<float>> copies_;
  DType output_dtype_ = DType::kFloat32;
};

// A float output that is stored in two bytes once it is there.
class FloatOutput {
 public:
  // Puts itself in the place of `outputs`' tensor "output", if that is stored in two bytes.
  explicit FloatOutput(std::vector<NamedTensor>& outputs);
  void Store() const;

 private:
  std::vector<float> floats_;
  AnyTensor stored_;
};

}  // namespace heed

#endif  // HEED_SRC_FLOAT_REQUEST_H_
