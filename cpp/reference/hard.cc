// Hard attention: the key with the largest score, the first one of several, has weight 1.
//
// Source: Xu et al. 2015, Show, Attend and Tell, arXiv:1502.03044, section 4.1, with the choice
// made by argmax.
#include <vector>

#include "exact.h"
#include "softmax.h"

namespace heed::reference {

RowNormalize HardNormalize(const Request& request) {
  RefuseDenominator(request, "hard");
  return [](const RowPlace&, std::span<double> row) {
    if (IsEmpty(row)) return kMinusInfinity;
    if (HasNan(row)) {
      LoseRow(row);
      return 0.0;
    }
    size_t best = 0;
    for (size_t j = 1; j < row.size(); ++j) {
      if (row[j] > row[best]) best = j;
    }
    for (size_t j = 0; j < row.size(); ++j) row[j] = j == best ? 1.0 : kMinusInfinity;
    return 0.0;
  };
}

namespace hard {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), HardNormalize(request));
}

}  // namespace hard
}  // namespace heed::reference
