// Attention to q, k and v of float8_e4m3, on a GPU alone: how the tensors are scaled, and how far
// results may be from the reference.
#ifndef HEED_NATIVE_BENCH_FLOAT8_H_
#define HEED_NATIVE_BENCH_FLOAT8_H_

#include <cstdint>
#include <vector>

namespace heed::bench {

// Scales of `count` heads, all of them different, for numbers ~ N(0, 1) up to 6: the largest
// float8, 448, then stands for 6 to 12. They have 11 bits, so that a scale times a float8 is a
// float32 without rounding.
std::vector<float> Float8Scales(int64_t count, uint64_t seed);

// What heed/cuda.h lets attention of float8 err by, relative to the largest |v| and beside what the
// type of the output adds: kFloat8Products, kFloat8Lost for each of the keys that a row sees, and
// twice kFloat8Scores for the largest sum of the absolute terms of a score.
double Float8Allowance(int64_t kv_len, double largest_logit);

// Over thousands of keys that is more than the results themselves, and zeros would pass. But values
// are drawn independently of the weights, so the errors of a row add up as its terms do: as root
// mean squares over the columns its error is to its result as errors of weights are to weights, at
// most 2^-4, plus what errors of scores add, some 2^-5. Rows of fewer columns scatter too much.
inline constexpr double kFloat8Spread = 0x1p-3;
inline constexpr int64_t kFloat8SpreadColumns = 32;

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_FLOAT8_H_
