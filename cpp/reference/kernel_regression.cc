// Nadaraya-Watson kernel regression: sum_j K(u_j) v_j / sum_j K(u_j), u_j = |(q - k_j) / width|.
//
// Source: Nadaraya 1964, On Estimating Regression; Watson 1964, Smooth Regression Analysis. The
// score of a pair, for those who ask, is -u^2 / 2.
#include <cmath>
#include <string>
#include <vector>

#include "exact.h"
#include "softmax.h"

namespace heed::reference {
namespace {

// One width per dimension.
std::vector<double> ReadWidth(const Request& request, const Qkv& qkv) {
  std::vector<double> width = ReadPositive(request, "width");
  if (width.empty()) width = {1.0};
  if (width.size() == 1) width = std::vector(qkv.head_dim, width[0]);
  if (static_cast<int64_t>(width.size()) != qkv.head_dim) {
    throw Error(ErrorCode::kShape, "width has " + std::to_string(width.size()) +
                                       " values: expected 1 or head_dim, " +
                                       std::to_string(qkv.head_dim));
  }
  return width;
}

double SquaredDistance(std::span<const double> q, std::span<const double> k,
                       std::span<const double> width) {
  double sum = 0.0;
  for (size_t d = 0; d < q.size(); ++d) {
    const double difference = (q[d] - k[d]) / width[d];
    sum += difference * difference;
  }
  return sum;
}

// The kernels other than gaussian, each up to a constant factor.
double KernelValue(const std::string& kernel, double u) {
  if (std::isnan(u)) return u;  // comparisons below would turn it into 0
  if (kernel == "boxcar") return u <= 1.0 ? 1.0 : 0.0;
  if (kernel == "triangular") return u < 1.0 ? 1.0 - u : 0.0;
  if (kernel == "epanechnikov") return u < 1.0 ? 1.0 - u * u : 0.0;
  return 1.0;  // constant
}

// Replaces scores -u^2 / 2 by K(u) / sum K(u) and returns log sum K(u). A row without mass becomes
// zeros and returns -inf.
double NormalizeByKernel(const std::string& kernel, std::span<double> row) {
  double sum = 0.0;
  for (double& s : row) {
    if (s == kMinusInfinity) continue;
    s = KernelValue(kernel, std::sqrt(-2.0 * s));
    sum += s;
  }
  for (double& s : row) s = s == kMinusInfinity || sum == 0.0 ? 0.0 : s / sum;
  return std::log(sum);
}

}  // namespace

PairScore SquaredDistanceScore(const Request& request, const Qkv& qkv) {
  const std::vector<double> width = ReadWidth(request, qkv);
  const double scale = ReadNumber(request, "scale").value_or(1.0);
  return [width, scale, &qkv](int64_t b, int64_t h, int64_t i, int64_t j) {
    const auto k = qkv.k.Row(b, qkv.KvHead(h), j);
    return -0.5 * scale * SquaredDistance(qkv.q.Row(b, h, i), k, width);
  };
}

RowNormalize KernelSumNormalize(const Request& request) {
  const std::string kernel =
      ReadWord(request, "kernel", {"gaussian", "boxcar", "triangular", "epanechnikov", "constant"})
          .value_or("gaussian");
  if (ReadFlag(request, "return_lse") && kernel != "gaussian") {
    throw Error(ErrorCode::kUnsupported, "return_lse with kernel \"" + kernel +
                                             "\": only the gaussian kernel has a softmax form");
  }
  return [kernel](const RowPlace&, std::span<double> row) {
    // The softmax of -u^2 / 2 never underflows, unlike exp(-u^2 / 2) itself.
    return kernel == "gaussian" ? Softmax(row, kMinusInfinity) : NormalizeByKernel(kernel, row);
  };
}

namespace kernel_regression {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, SquaredDistanceScore(request, qkv), KernelSumNormalize(request));
}

}  // namespace kernel_regression
}  // namespace heed::reference
