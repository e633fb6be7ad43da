// Top-k attention: softmax over the k largest scores; the other keys count as not kept.
//
// Source: Gupta et al. 2021, Memory-efficient Transformers via Top-k Attention, arXiv:2106.06899.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "exact.h"
#include "softmax.h"

namespace heed::reference {

RowNormalize TopKNormalize(const Request& request, const Qkv& qkv) {
  const std::vector<double> sinks = ReadSinks(request, qkv);
  const int64_t k = ReadCount(request, "top_k").value_or(8);
  if (k < 1) {
    throw Error(ErrorCode::kRange, "top_k is " + std::to_string(k) + ": it must be at least 1");
  }
  return [k, sinks](const RowPlace& at, std::span<double> row) {
    if (HasNan(row)) {
      LoseRow(row);
      return std::nan("");
    }
    std::vector<size_t> order(row.size());
    std::iota(order.begin(), order.end(), size_t{0});
    // Stable: of equal scores the lower key index comes first.
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return row[a] > row[b]; });
    for (size_t n = static_cast<size_t>(k); n < order.size(); ++n) row[order[n]] = kMinusInfinity;
    const std::vector<double> chosen(row.begin(), row.end());
    const double lse = Softmax(row, sinks.empty() ? kMinusInfinity : sinks[at.h]);
    for (size_t j = 0; j < row.size(); ++j) {
      if (chosen[j] == kMinusInfinity) row[j] = kMinusInfinity;
    }
    return lse;
  };
}

namespace top_k {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), TopKNormalize(request, qkv));
}

}  // namespace top_k
}  // namespace heed::reference
