// What tests of recurrent attention in chunks share: tensors, and how results are compared.
#ifndef HEED_TESTS_CUDA_CHUNK_RESULTS_H_
#define HEED_TESTS_CUDA_CHUNK_RESULTS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "buffer.h"
#include "gtest/gtest.h"
#include "heed/dtype.h"
#include "heed/recurrent.h"
#include "random.h"

namespace heed::testing {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline Buffer<float> Normals(const Extents& shape, uint64_t seed, Layout layout = Layout::kDense) {
  Buffer<float> buffer(shape, layout, kNan);
  Random random(seed);
  buffer.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x = random.Normal(); });
  return buffer;
}

inline std::vector<float> Absolute(std::vector<float> values) {
  for (float& x : values) x = std::abs(x);
  return values;
}

struct ChunkResults {
  std::vector<float> output, state;
};

inline double RoundingOf(DType dtype) {
  return dtype == DType::kBFloat16 ? 0x1p-8 : dtype == DType::kFloat16 ? 0x1p-11 : 0;
}

inline void ExpectNear(const std::vector<float>& actual, const std::vector<double>& expected,
                       const std::vector<double>& terms, double error, double rounding,
                       const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 0;
  for (const double x : expected) largest = std::max(largest, std::abs(x));
  for (size_t n = 0; n < actual.size(); ++n) {
    const double bound =
        kRecurrentMaxError * largest + error * terms[n] + rounding * std::abs(expected[n]);
    ASSERT_LE(std::abs(double{actual[n]} - expected[n]), bound)
        << what << " [" << n << "]: " << actual[n] << " instead of " << expected[n];
  }
}

// The bound of single elements is that of the worst case. Roundings go both ways, so that together
// they err by little more than one of them, if there are many: a term that is missing shows.
inline void ExpectNearTogether(const std::vector<float>& actual,
                               const std::vector<double>& expected, double rounding,
                               const std::string& what) {
  constexpr size_t kMany = 16;
  if (actual.size() < kMany) return;
  double errors = 0, size = 0;
  for (size_t n = 0; n < actual.size(); ++n) {
    errors += std::pow(double{actual[n]} - expected[n], 2);
    size += expected[n] * expected[n];
  }
  EXPECT_LE(std::sqrt(errors), rounding * std::sqrt(size)) << what;
}

// What a number that is not finite reaches, of the output and of the state: nothing else changes.
struct Reach {
  std::function<bool(int64_t head, int64_t token, int64_t col)> output;
  std::function<bool(int64_t kv_head, int64_t feature, int64_t col)> state;
};

// Of a batch of one.
template <class Call>
void ExpectReaches(Call& poisoned, const ChunkResults& clean, const Reach& reach,
                   const std::string& what) {
  const ChunkResults results = RunCall(poisoned);
  const auto expect = [&](float actual, float expected, bool reached, const std::string& where) {
    if (reached) {
      ASSERT_FALSE(std::isfinite(actual)) << what << ", " << where;
    } else {
      ASSERT_EQ(actual, expected) << what << ", " << where;
    }
  };
  for (size_t n = 0; n < clean.output.size(); ++n) {
    const int64_t at = static_cast<int64_t>(n), row = at / poisoned.dim_v;
    const int64_t head = row / poisoned.len, token = row % poisoned.len;
    expect(results.output[n], clean.output[n], reach.output(head, token, at % poisoned.dim_v),
           "output of head " + std::to_string(head) + ", token " + std::to_string(token));
    if (::testing::Test::HasFatalFailure()) return;
  }
  for (size_t n = 0; n < clean.state.size(); ++n) {
    const int64_t at = static_cast<int64_t>(n), row = at / poisoned.dim_v;
    const int64_t head = row / poisoned.dim, feature = row % poisoned.dim;
    expect(results.state[n], clean.state[n], reach.state(head, feature, at % poisoned.dim_v),
           "state of KV head " + std::to_string(head) + ", feature " + std::to_string(feature));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_CHUNK_RESULTS_H_
