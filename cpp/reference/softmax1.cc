// Softmax with 1 added to its denominator: exp(s) / (1 + sum exp(s)), a sink of 0.
//
// Source: Miller 2023, Attention Is Off By One.
#include <vector>

#include "exact.h"
#include "softmax.h"

namespace heed::reference {

RowNormalize Softmax1Normalize(const Request& request) {
  if (FindInput(request, "sinks") != nullptr) {
    throw Error(ErrorCode::kUnsupported,
                "sinks with normalize \"softmax1\": it is a sink of 0 itself");
  }
  return [](const RowPlace&, std::span<double> row) { return Softmax(row, 0.0); };
}

namespace softmax1 {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), Softmax1Normalize(request));
}

}  // namespace softmax1
}  // namespace heed::reference
