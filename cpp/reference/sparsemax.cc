// Sparsemax: the point of the probability simplex nearest to the scores, max(0, s - tau).
//
// Source: Martins & Astudillo 2016, From Softmax to Sparsemax, arXiv:1602.02068, algorithm 1.
#include <algorithm>
#include <functional>
#include <vector>

#include "exact.h"
#include "softmax.h"

namespace heed::reference {

RowNormalize SparsemaxNormalize(const Request& request) {
  RefuseDenominator(request, "sparsemax");
  return [](const RowPlace&, std::span<double> row) {
    if (IsEmpty(row)) {
      std::ranges::fill(row, 0.0);
      return kMinusInfinity;
    }
    if (HasNanOrInfinity(row)) {
      LoseRow(row);
      return 0.0;
    }
    // The support is the longest run of the sorted scores whose last one stays above the threshold.
    std::vector<double> sorted(row.begin(), row.end());
    std::ranges::sort(sorted, std::greater<>());
    double sum = 0.0, tau = 0.0;
    for (size_t n = 0; n < sorted.size() && sorted[n] != kMinusInfinity; ++n) {
      sum += sorted[n];
      const double count = static_cast<double>(n + 1);
      if (1.0 + count * sorted[n] <= sum) break;
      tau = (sum - 1.0) / count;
    }
    for (double& s : row) s = std::max(0.0, s - tau);
    return 0.0;
  };
}

namespace sparsemax {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), SparsemaxNormalize(request));
}

}  // namespace sparsemax
}  // namespace heed::reference
