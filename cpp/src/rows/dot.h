// Dot products and sums of rows in plain code, beside the kernels.
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

// The same of rows that are short and well scaled, in float32.
inline float DotShort(const float* x, const float* y, int64_t width) {
  float sums[8] = {};
  int64_t c = 0;
  for (; c + 8 <= width; c += 8) {
    for (int64_t n = 0; n < 8; ++n) sums[n] += x[c + n] * y[c + n];
  }
  for (; c < width; ++c) sums[0] += x[c] * y[c];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// to += factor * row.
inline void AddTimes(float factor, const float* row, int64_t width, float* to) {
  for (int64_t c = 0; c < width; ++c) to[c] += factor * row[c];
}

}  // namespace heed

#endif  // HEED_SRC_ROWS_DOT_H_
