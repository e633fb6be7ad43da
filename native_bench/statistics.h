// Order statistics of a set of timings.
#ifndef HEED_NATIVE_BENCH_STATISTICS_H_
#define HEED_NATIVE_BENCH_STATISTICS_H_

#include <span>

namespace heed::bench {

struct Summary {
  int count = 0;
  double min = 0;
  double p10 = 0;
  double median = 0;
  double p90 = 0;

  // (p90 - p10) / median: how much a single repetition says. 0 for an empty set.
  double Spread() const { return median > 0 ? (p90 - p10) / median : 0; }
};

// The value below which `fraction` of the samples lie, linear between neighbours (the definition of
// NumPy's default). `samples` is not empty and need not be sorted; 0 <= fraction <= 1.
double Quantile(std::span<const double> samples, double fraction);

// All of a summary is 0 for no samples.
Summary Summarize(std::span<const double> samples);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_STATISTICS_H_
