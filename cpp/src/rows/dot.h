// Dot products of rows in float64, beside the kernels.
#ifndef HEED_SRC_ROWS_DOT_H_
#define HEED_SRC_ROWS_DOT_H_

#include <cstdint>

namespace heed {

// Four sums side by side: one alone waits for its own additions, 2 to 3 times as long.
inline double DotRows(const float* x, const float* y, int64_t width) {
  double sums[4] = {};
  int64_t c = 0;
  for (; c + 4 <= width; c += 4) {
    for (int64_t n = 0; n < 4; ++n) {
      sums[n] += static_cast<double>(x[c + n]) * static_cast<double>(y[c + n]);
    }
  }
  for (; c < width; ++c) sums[0] += static_cast<double>(x[c]) * static_cast<double>(y[c]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

}  // namespace heed

#endif  // HEED_SRC_ROWS_DOT_H_
