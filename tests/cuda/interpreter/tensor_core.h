// Sums of products as tensor cores make them.
#ifndef HEED_TESTS_CUDA_INTERPRETER_TENSOR_CORE_H_
#define HEED_TESTS_CUDA_INTERPRETER_TENSOR_CORE_H_

#include <bit>
#include <cmath>
#include <cstdint>

namespace heed::interpreter {

// A float32 whose digits beyond the 24th are cut off, as is what an addition leaves of them.
inline float CutToFloat(double x) {
  return static_cast<float>(
      std::bit_cast<double>(std::bit_cast<uint64_t>(x) & ~((uint64_t{1} << 29) - 1)));
}

// c + sum of a[n] b[n], of `count` products, `group` of which are added at once and without error
// before digits are cut off.
inline float SumOfProducts(float c, const float* a, const float* b, int count, int group) {
  float sum = c;
  for (int begin = 0; begin < count; begin += group) {
    double exact = sum;
    for (int n = begin; n < begin + group; ++n) exact += static_cast<double>(a[n]) * b[n];
    sum = CutToFloat(exact);
  }
  return sum;
}

}  // namespace heed::interpreter

#endif  // HEED_TESTS_CUDA_INTERPRETER_TENSOR_CORE_H_
