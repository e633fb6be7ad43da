#include "native_bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace heed::bench {

double Quantile(std::span<const double> samples, double fraction) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(std::floor(position));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Summary Summarize(std::span<const double> samples) {
  if (samples.empty()) return {};
  return {.count = static_cast<int>(samples.size()),
          .min = Quantile(samples, 0),
          .p10 = Quantile(samples, 0.1),
          .median = Quantile(samples, 0.5),
          .p90 = Quantile(samples, 0.9)};
}

}  // namespace heed::bench
