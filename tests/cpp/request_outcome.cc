#include "request_outcome.h"

#include <cstdint>
#include <cstring>

#include "heed/dtype.h"
#include "heed/registry.h"

namespace heed::testing {
namespace {

// Bytes behind each output, compared between calls. None for memory checkers, which see writes
// there.
#ifdef HEED_EXACT_MEMORY
constexpr size_t kTail = 0;
#else
constexpr size_t kTail = 8;
#endif

double Load(DType dtype, const std::byte* from) {
  if (dtype == DType::kFloat32) {
    float x = 0;
    std::memcpy(&x, from, sizeof x);
    return x;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return dtype == DType::kFloat16 ? ToFloat(Float16{bits}) : ToFloat(BFloat16{bits});
}

}  // namespace

Outcome RunOn(const Request& request, ThreadPool* pool) {
  const std::vector<OutputSpec> specs = PlanOutputs(request);
  Outcome outcome;
  std::vector<NamedTensor> outputs;
  for (const OutputSpec& spec : specs) {
    // All bits set is NaN in every type.
    std::vector<std::byte>& bytes = outcome.bytes[spec.name];
    const auto shape = std::span(spec.shape).first(static_cast<size_t>(spec.rank));
    int64_t size = ElementSize(spec.dtype);
    for (const int64_t extent : shape) size *= extent;
    bytes.reserve(1);  // an empty output has a place too
    bytes.assign(static_cast<size_t>(size) + kTail, std::byte{0xff});
    outputs.push_back({spec.name, ContiguousTensor(spec.dtype, bytes.data(), shape)});
  }
  Run(request, outputs, pool);
  for (const NamedTensor& output : outputs) {
    const size_t size = static_cast<size_t>(ElementSize(output.tensor.dtype));
    const std::vector<std::byte>& bytes = outcome.bytes[output.name];
    std::vector<double>& values = outcome.values[output.name];
    for (size_t at = 0; at + kTail < bytes.size(); at += size) {
      values.push_back(Load(output.tensor.dtype, bytes.data() + at));
    }
  }
  return outcome;
}

}  // namespace heed::testing
