// Entmax with alpha = 1.5: weights max(0, s / 2 - tau)^2, between softmax and sparsemax.
//
// Source: Peters, Niculae & Martins 2019, Sparse Sequence-to-Sequence Models, arXiv:1905.05702,
// algorithm 2.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "exact.h"
#include "softmax.h"

namespace heed::reference {

RowNormalize Entmax15Normalize(const Request& request) {
  RefuseDenominator(request, "entmax15");
  return [](const RowPlace&, std::span<double> row) {
    if (IsEmpty(row)) {
      std::ranges::fill(row, 0.0);
      return kMinusInfinity;
    }
    if (HasNanOrInfinity(row)) {
      LoseRow(row);
      return 0.0;
    }
    // Relative to the largest score: the squares below would cancel otherwise.
    const double top = std::ranges::max(row);
    std::vector<double> sorted(row.begin(), row.end());
    std::ranges::sort(sorted, std::greater<>());
    double sum = 0.0, squares = 0.0, tau = 0.0;
    for (size_t n = 0; n < sorted.size() && sorted[n] != kMinusInfinity; ++n) {
      const double x = (sorted[n] - top) / 2.0;
      sum += x;
      squares += x * x;
      const double count = static_cast<double>(n + 1);
      const double mean = sum / count;
      const double spread = squares - sum * mean;  // sum of squared distances to the mean
      if (spread > 1.0) break;
      const double next = mean - std::sqrt((1.0 - spread) / count);
      if (next > x) break;  // the last one would get no weight
      tau = next;
    }
    for (double& s : row) {
      const double x = std::max(0.0, (s - top) / 2.0 - tau);
      s = x * x;
    }
    return 0.0;
  };
}

namespace entmax15 {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), Entmax15Normalize(request));
}

}  // namespace entmax15
}  // namespace heed::reference
