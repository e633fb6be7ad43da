// Reads a request's tensors and parameters by name, with checks, and notices what nobody read.
#ifndef HEED_SRC_REQUEST_READER_H_
#define HEED_SRC_REQUEST_READER_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/expression.h"
#include "heed/registry.h"
#include "heed/request.h"

namespace heed {

// One request under reading. Construction checks every name against the mechanism's row, so a
// misspelt input or parameter is an error, and so is a missing input. The mechanism and the request
// must outlive the reader.
class RequestReader {
 public:
  RequestReader(const Mechanism& mechanism, const Request& request);

  // A rank-4 float32 input; throws Error(kOption) when it is missing.
  TensorView<const float> RequiredTensor(std::string_view name) const;
  // The same for float32, float16 and bfloat16.
  StoredTensor RequiredStored(std::string_view name) const;
  // Optional rank-4 or rank-2 inputs: [q_len, kv_len] becomes [1, 1, q_len, kv_len].
  TensorView<const float> PairTensor(std::string_view name) const;
  TensorView<const uint8_t> PairMask(std::string_view name) const;
  // Optional inputs of any rank, with leading extents of 1: [n, m] becomes [1, 1, n, m]. Absent
  // views when the request does not have them. Shapes are the typed function's to check.
  TensorView<const float> FloatTensor(std::string_view name) const;
  TensorView<const int32_t> IntTensor(std::string_view name) const;
  TensorView<const uint8_t> ByteTensor(std::string_view name) const;
  // Optional contiguous vectors (any rank). Empty when absent.
  std::span<const float> Floats(std::string_view name) const;
  std::span<const int32_t> Ints(std::string_view name) const;

  bool Flag(std::string_view name) const;
  std::optional<double> Number(std::string_view name) const;
  // A whole number within +-2^53.
  std::optional<int64_t> Count(std::string_view name) const;
  // A whole number in [0, 2^64): as a number up to 2^53, or as decimal digits.
  std::optional<uint64_t> Seed(std::string_view name) const;
  std::optional<std::string> Word(std::string_view name) const;
  // One number or a list of numbers; empty when absent.
  std::vector<double> Numbers(std::string_view name) const;
  const ParamValue* Param(std::string_view name) const;
  // The tensors whose names begin with `prefix` and a dot, under the rest of their names.
  std::vector<CapturedTensor> Named(std::string_view prefix) const;
  // Whether the mechanism has an input of this name.
  bool Takes(std::string_view name) const;
  // The tensor as it came, or nullptr.
  const AnyTensor* Input(std::string_view name) const;

 private:
  const AnyTensor* Find(std::string_view name, DType dtype) const;

  const Mechanism& mechanism_;
  const Request& request_;
};

// A rank-4 view of a caller's float32 output, by name. Lower ranks get last extents of 1.
// Returns an absent view when there is none of that name.
TensorView<float> OutputView(std::span<const NamedTensor> outputs, std::string_view name);

// A rank-4 output of any storage type.
StoredOutput StoredOutputView(std::span<const NamedTensor> outputs, std::string_view name);

// A double as a whole number; throws Error(kRange) naming the parameter when it is not one.
int64_t WholeNumber(std::string_view name, double value);

}  // namespace heed

#endif  // HEED_SRC_REQUEST_READER_H_
