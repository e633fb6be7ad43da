#include "softmax.h"

#include <cmath>

namespace heed::reference {

double Softmax(std::span<double> row, double sink) {
  double row_max = kMinusInfinity;
  for (const double s : row) {
    if (s > row_max || std::isnan(s)) row_max = s;  // a NaN stays: no number is greater than it
  }
  if (row_max == kMinusInfinity) {
    for (double& s : row) s = 0.0;
    return kMinusInfinity;
  }
  if (sink > row_max) row_max = sink;

  double sum = sink == kMinusInfinity ? 0.0 : std::exp(sink - row_max);
  for (const double s : row) {
    if (s != kMinusInfinity) sum += std::exp(s - row_max);
  }
  for (double& s : row) s = s == kMinusInfinity ? 0.0 : std::exp(s - row_max) / sum;
  return row_max + std::log(sum);
}

}  // namespace heed::reference
