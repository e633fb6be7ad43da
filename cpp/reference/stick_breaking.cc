// Stick breaking: from the last visible key backwards, each key takes its share sigmoid(s) of what
// is left.
//
// Source: Tan et al. 2024, Scaling Stick-Breaking Attention, arXiv:2410.17980, equation 3.
#include <cmath>
#include <vector>

#include "exact.h"
#include "softmax.h"

namespace heed::reference {

RowNormalize StickBreakingNormalize(const Request& request) {
  RefuseDenominator(request, "stick_breaking");
  return [](const RowPlace&, std::span<double> row) {
    const double lse = IsEmpty(row) ? kMinusInfinity : 0.0;
    double left = 1.0;
    for (size_t j = row.size(); j-- > 0;) {
      const double s = row[j];
      if (s == kMinusInfinity) {
        row[j] = 0.0;
        continue;
      }
      row[j] = left / (1.0 + std::exp(-s));
      left /= 1.0 + std::exp(s);
    }
    return lse;
  };
}

namespace stick_breaking {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), StickBreakingNormalize(request));
}

}  // namespace stick_breaking
}  // namespace heed::reference
