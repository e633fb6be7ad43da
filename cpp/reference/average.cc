// Average pooling: every visible key has the same weight, whatever q and k hold.
//
// Source: Zhang, Xiong & Su 2018, Accelerating Neural Transformer via an Average Attention Network,
// arXiv:1805.00631, section 3.1.
#include <vector>

#include "exact.h"
#include "softmax.h"

namespace heed::reference {

PairScore ZeroScore() {
  return [](int64_t, int64_t, int64_t, int64_t) { return 0.0; };
}

RowNormalize AverageNormalize(const Request& request) {
  RefuseDenominator(request, "average");
  return [](const RowPlace&, std::span<double> row) {
    double count = 0.0;
    for (const double s : row) count += s != kMinusInfinity ? 1.0 : 0.0;
    for (double& s : row) s = s != kMinusInfinity ? 1.0 / count : 0.0;
    return count > 0.0 ? 0.0 : kMinusInfinity;
  };
}

namespace average {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, ZeroScore(), AverageNormalize(request));
}

}  // namespace average
}  // namespace heed::reference
