#include "rows.h"

#include <cmath>
#include <limits>

namespace heed::reference {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// The largest element that counts, -inf when none does, NaN when one of them is NaN or +inf.
double Largest(const std::vector<double>& x, const std::vector<bool>& counts) {
  double largest = kMinusInfinity;
  for (size_t j = 0; j < x.size(); ++j) {
    if (!counts[j]) continue;
    if (std::isnan(x[j]) || x[j] == -kMinusInfinity) return std::nan("");
    if (x[j] > largest) largest = x[j];
  }
  return largest;
}

// (x - center) over the root of their mean square.
NormedRow Divide(const std::vector<double>& x, double center, double epsilon) {
  double squares = 0;
  for (const double value : x) squares += (value - center) * (value - center);
  NormedRow row = {{}, center, 1 / std::sqrt(squares / x.size() + epsilon)};
  for (const double value : x) row.values.push_back((value - center) * row.inverse_deviation);
  return row;
}

}  // namespace

std::vector<double> SoftmaxOfRow(const std::vector<double>& x, const std::vector<bool>& counts) {
  const double largest = Largest(x, counts);
  std::vector<double> weights(x.size(), 0.0);
  if (largest == kMinusInfinity) return weights;
  double sum = 0;
  for (size_t j = 0; j < x.size(); ++j) {
    if (counts[j]) sum += std::exp(x[j] - largest);
  }
  for (size_t j = 0; j < x.size(); ++j) {
    if (counts[j]) weights[j] = std::exp(x[j] - largest) / sum;
  }
  return weights;
}

std::vector<double> LogSoftmaxOfRow(const std::vector<double>& x) {
  const double largest = Largest(x, std::vector<bool>(x.size(), true));
  if (largest == kMinusInfinity) return x;
  double sum = 0;
  for (const double value : x) sum += std::exp(value - largest);
  std::vector<double> logs;
  for (const double value : x) logs.push_back(value - largest - std::log(sum));
  return logs;
}

NormedRow LayerNormOfRow(const std::vector<double>& x, double epsilon) {
  double sum = 0;
  for (const double value : x) sum += value;
  return Divide(x, sum / x.size(), epsilon);
}

NormedRow RmsNormOfRow(const std::vector<double>& x, double epsilon) {
  return Divide(x, 0.0, epsilon);
}

}  // namespace heed::reference
