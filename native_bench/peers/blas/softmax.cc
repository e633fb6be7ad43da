// Compiled with -O3 -ffast-math, which lets GCC call the C library's vector exp and tanh, once for
// each instruction set: OpenBLAS chooses its own at run time, and so does this.
#include "native_bench/peers/blas/softmax.h"

#include <algorithm>
#include <cmath>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define HEED_BENCH_CLONES __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define HEED_BENCH_CLONES
#endif

namespace heed::bench::blas_peer {
namespace {

HEED_BENCH_CLONES float LargestOf(const float* row, int64_t count) {
  float largest = row[0];
  for (int64_t j = 1; j < count; ++j) largest = std::max(largest, row[j]);
  return largest;
}

// Replaces scores by exp(score - row_max) and returns their sum.
HEED_BENCH_CLONES float Exponentials(float* row, int64_t count, float row_max) {
  float sum = 0;
  for (int64_t j = 0; j < count; ++j) {
    row[j] = std::exp(row[j] - row_max);
    sum += row[j];
  }
  return sum;
}

HEED_BENCH_CLONES void Multiply(float* row, int64_t count, float factor) {
  for (int64_t j = 0; j < count; ++j) row[j] *= factor;
}

}  // namespace

HEED_BENCH_CLONES void Softcap(float* scores, int64_t count, float cap) {
  for (int64_t n = 0; n < count; ++n) scores[n] = cap * std::tanh(scores[n] / cap);
}

void SoftmaxRow(float* row, int64_t size, Range visible, const float* sink) {
  std::fill(row, row + visible.begin, 0.0f);
  std::fill(row + visible.end, row + size, 0.0f);
  const int64_t count = visible.end - visible.begin;
  if (count == 0) return;
  float* seen = row + visible.begin;
  float row_max = LargestOf(seen, count);
  if (sink != nullptr) row_max = std::max(row_max, *sink);
  float row_sum = Exponentials(seen, count, row_max);
  if (sink != nullptr) row_sum += std::exp(*sink - row_max);
  Multiply(seen, count, 1 / row_sum);
}

}  // namespace heed::bench::blas_peer
