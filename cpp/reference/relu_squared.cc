// Squared ReLU attention: weights max(0, s)^2 / n^a, where n keys are visible to the row.
//
// Source: So et al. 2021, Primer: Searching for Efficient Transformers, arXiv:2109.08668 (the
// function); as an attention normaliser: Hua et al. 2022, arXiv:2202.10447, Wortsman et al. 2023,
// arXiv:2309.08586.
#include <algorithm>
#include <vector>

#include "exact.h"
#include "softmax.h"

namespace heed::reference {

RowNormalize ReluSquaredNormalize(const Request& request) {
  RefuseDenominator(request, "relu_squared");
  return [&request](const RowPlace&, std::span<double> row) {
    if (IsEmpty(row)) {
      std::ranges::fill(row, 0.0);
      return kMinusInfinity;
    }
    const double factor = LengthFactor(request, row);
    for (double& s : row) s = (s < 0.0 ? 0.0 : s * s) * factor;
    return 0.0;
  };
}

namespace relu_squared {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), ReluSquaredNormalize(request));
}

}  // namespace relu_squared
}  // namespace heed::reference
