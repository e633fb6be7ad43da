// Sigmoid attention: each weight is sigmoid(s + b) by itself; rows need not sum to 1.
//
// Source: Ramapuram et al. 2024, Theory, Analysis, and Best Practices for Sigmoid Self-Attention,
// arXiv:2409.04431; b defaults to -log(kv_len), section 3.
#include <algorithm>
#include <cmath>
#include <vector>

#include "exact.h"
#include "softmax.h"

namespace heed::reference {

RowNormalize SigmoidNormalize(const Request& request, const Qkv& qkv) {
  RefuseDenominator(request, "sigmoid");
  const double bias = ReadNumber(request, "sigmoid_bias")
                          .value_or(-std::log(std::max(1.0, static_cast<double>(qkv.kv_len))));
  return [bias](const RowPlace&, std::span<double> row) {
    const double lse = IsEmpty(row) ? kMinusInfinity : 0.0;
    for (double& s : row) s = s == kMinusInfinity ? 0.0 : 1.0 / (1.0 + std::exp(-(s + bias)));
    return lse;
  };
}

namespace sigmoid {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), SigmoidNormalize(request, qkv));
}

}  // namespace sigmoid
}  // namespace heed::reference
