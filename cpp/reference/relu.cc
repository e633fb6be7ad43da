// ReLU attention: weights max(0, s) / n^a, where n keys are visible to the row.
//
// Source: Wortsman et al. 2023, Replacing softmax with ReLU in Vision Transformers,
// arXiv:2309.08586; a = 1 is the value that works there.
#include <algorithm>
#include <cmath>
#include <vector>

#include "exact.h"
#include "softmax.h"

namespace heed::reference {

double LengthFactor(const Request& request, std::span<const double> row) {
  double count = 0.0;
  for (const double s : row) count += s != kMinusInfinity ? 1.0 : 0.0;
  return std::pow(count, -ReadNumber(request, "length_power").value_or(1.0));
}

RowNormalize ReluNormalize(const Request& request) {
  RefuseDenominator(request, "relu");
  return [&request](const RowPlace&, std::span<double> row) {
    if (IsEmpty(row)) {
      std::ranges::fill(row, 0.0);
      return kMinusInfinity;
    }
    const double factor = LengthFactor(request, row);
    for (double& s : row) s = (s < 0.0 ? 0.0 : s) * factor;
    return 0.0;
  };
}

namespace relu {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), ReluNormalize(request));
}

}  // namespace relu
}  // namespace heed::reference
