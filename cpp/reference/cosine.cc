// Cosine attention: softmax(scale / temperature * q.k / (|q| |k|)) V.
//
// Source: Henry et al. 2020, arXiv:2010.04245; Liu et al. 2022, arXiv:2111.09883, section 3.2,
// where temperatures below 0.01 are raised to it.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "exact.h"

namespace heed::reference {
namespace {

double Length(std::span<const double> x) {
  double sum = 0.0;
  for (const double element : x) sum += element * element;
  return std::sqrt(sum);
}

// One temperature per query head.
std::vector<double> ReadTemperature(const Request& request, const Qkv& qkv) {
  std::vector<double> temperature = ReadPositive(request, "temperature");
  if (temperature.empty()) temperature = {1.0};
  if (temperature.size() == 1) temperature = std::vector(qkv.num_heads, temperature[0]);
  if (static_cast<int64_t>(temperature.size()) != qkv.num_heads) {
    throw Error(ErrorCode::kShape, "temperature has " + std::to_string(temperature.size()) +
                                       " values: expected 1 or one per query head, " +
                                       std::to_string(qkv.num_heads));
  }
  const std::optional<double> least = ReadNumber(request, "min_temperature");
  if (least && *least <= 0.0) {
    throw Error(ErrorCode::kRange,
                "min_temperature is " + std::to_string(*least) + ": it must be greater than 0");
  }
  for (double& t : temperature) t = std::max(t, least.value_or(0.0));
  return temperature;
}

}  // namespace

PairScore CosineScore(const Request& request, const Qkv& qkv) {
  const std::vector<double> temperature = ReadTemperature(request, qkv);
  const double scale = ReadNumber(request, "scale").value_or(1.0);
  return [temperature, scale, &qkv](int64_t b, int64_t h, int64_t i, int64_t j) {
    const auto q = qkv.q.Row(b, h, i);
    const auto k = qkv.k.Row(b, qkv.KvHead(h), j);
    double dot = 0.0;
    for (size_t d = 0; d < q.size(); ++d) dot += q[d] * k[d];
    const double lengths = Length(q) * Length(k);
    return lengths == 0.0 ? 0.0 : scale / temperature[h] * dot / lengths;
  };
}

namespace cosine {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, CosineScore(request, qkv), SoftmaxNormalize(request, qkv));
}

}  // namespace cosine
}  // namespace heed::reference
