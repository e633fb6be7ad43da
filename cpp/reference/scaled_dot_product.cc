// Scaled dot-product attention: softmax(scale * Q K^T) V, sinks in the denominator.
//
// Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1; sinks: Xiao et al. 2023,
// arXiv:2309.17453.
#include <cmath>
#include <memory>
#include <vector>

#include "exact.h"
#include "relative.h"
#include "softmax.h"

namespace heed::reference {

PairScore DotScore(const Qkv& qkv, double scale) {
  return [scale, &qkv](int64_t b, int64_t h, int64_t i, int64_t j) {
    const auto q = qkv.q.Row(b, h, i);
    const auto k = qkv.k.Row(b, qkv.KvHead(h), j);
    double sum = 0.0;
    for (size_t d = 0; d < q.size(); ++d) sum += q[d] * k[d];
    return scale * sum;
  };
}

PairScore DotScore(const Request& request, const Qkv& qkv) {
  const auto relative = std::make_shared<Relative>(request, qkv);
  double scale = ReadScale(request, qkv);
  // DeBERTa's default counts the terms.
  if (relative->rows_word() != "clip" && !ReadNumber(request, "scale")) {
    scale /= std::sqrt(1.0 + relative->num_terms());
  }
  if (!relative->has_terms()) return DotScore(qkv, scale);
  const PairScore dot = DotScore(qkv, 1.0);
  return [=](int64_t b, int64_t h, int64_t i, int64_t j) {
    return scale * (dot(b, h, i, j) + relative->Term(b, h, i, j));
  };
}

RowNormalize SoftmaxNormalize(const Request& request, const Qkv& qkv) {
  const std::vector<double> sinks = ReadSinks(request, qkv);
  return [sinks](const RowPlace& at, std::span<double> row) {
    return Softmax(row, sinks.empty() ? kMinusInfinity : sinks[at.h]);
  };
}

namespace scaled_dot_product {

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  return RunExact(request, qkv, DotScore(request, qkv), SoftmaxNormalize(request, qkv));
}

}  // namespace scaled_dot_product
}  // namespace heed::reference
