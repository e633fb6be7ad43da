#include "native_bench/float8.h"

#include <random>

#include "heed/cuda.h"

namespace heed::bench {

std::vector<float> Float8Scales(int64_t count, uint64_t seed) {
  constexpr uint64_t kSmallest = 878;  // 448 * 878 * 2^-16 is 6.0
  std::mt19937_64 generator(seed);
  std::vector<float> scales(static_cast<size_t>(count));
  for (float& scale : scales) {
    scale = static_cast<float>(kSmallest + generator() % kSmallest) * 0x1p-16f;
  }
  return scales;
}

double Float8Allowance(int64_t kv_len, double largest_logit) {
  return cuda::kFloat8Products + cuda::kFloat8Lost * static_cast<double>(kv_len) +
         2 * cuda::kFloat8Scores * largest_logit;
}

}  // namespace heed::bench
