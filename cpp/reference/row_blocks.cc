#include "row_blocks.h"

#include <cmath>

namespace heed::reference {

Array LayerNormRows(Array x, std::span<const double> weight, std::span<const double> bias,
                    double epsilon) {
  const size_t dim = x.shape[3];
  for (size_t start = 0; start < x.values.size(); start += dim) {
    const auto row = std::span(x.values).subspan(start, dim);
    double mean = 0.0, squares = 0.0;
    for (const double value : row) mean += value / static_cast<double>(dim);
    for (const double value : row) squares += (value - mean) * (value - mean);
    const double root = std::sqrt(squares / static_cast<double>(dim) + epsilon);
    for (size_t d = 0; d < dim; ++d) {
      row[d] = (row[d] - mean) / root * (weight.empty() ? 1.0 : weight[d]) +
               (bias.empty() ? 0.0 : bias[d]);
    }
  }
  return x;
}

Array LinearRows(const Array& x, std::span<const double> w, std::span<const double> b,
                 int64_t out) {
  const int64_t in = x.shape[3];
  Array product;
  product.shape = {x.shape[0], x.shape[1], x.shape[2], out};
  for (int64_t row = 0; row < x.shape[0] * x.shape[1] * x.shape[2]; ++row) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = b.empty() ? 0.0 : b[o];
      for (int64_t d = 0; d < in; ++d) sum += x.values[row * in + d] * w[o * in + d];
      product.values.push_back(sum);
    }
  }
  return product;
}

std::string ReadActivation(const Request& request) {
  return ReadWord(request, "activation", {"gelu", "gelu_tanh", "silu", "relu"}).value_or("gelu");
}

double Activate(const std::string& activation, double x) {
  if (activation == "relu") return x < 0 ? 0 : x;
  if (activation == "silu") return x / (1 + std::exp(-x));
  if (activation == "gelu") return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

Array SumRows(Array a, const Array& b) {
  for (size_t n = 0; n < a.values.size(); ++n) a.values[n] += b.values[n];
  return a;
}

Array RepeatBatch(const Array& x, int64_t batch) {
  if (x.shape[0] != 1) return x;
  Array all = {x.shape, {}};
  all.shape[0] = batch;
  for (int64_t b = 0; b < batch; ++b) {
    all.values.insert(all.values.end(), x.values.begin(), x.values.end());
  }
  return all;
}

}  // namespace heed::reference
