// What heed promises of its errors: at most twice the error of plain float32 loops, or four
// roundings of the largest value.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class AttentionAccuracy : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AttentionAccuracy);

// One row of attention as a first draft would compute it: float32, three passes, no tricks.
std::vector<float> PlainRow(const AttentionCase& c, int64_t h, int64_t i) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(c.sizes.head_dim));
  std::vector<float> weights, output(static_cast<size_t>(c.sizes.head_dim_v), 0.0f);
  float row_max = -INFINITY, sum = 0;
  for (int64_t j = 0; j < c.sizes.kv_len; ++j) {
    float dot = 0;
    for (int64_t d = 0; d < c.sizes.head_dim; ++d) dot += c.q(0, h, i, d) * c.k(0, h, j, d);
    weights.push_back(dot * scale);
    row_max = std::max(row_max, weights.back());
  }
  for (float& weight : weights) {
    weight = std::exp(weight - row_max);
    sum += weight;
  }
  for (int64_t j = 0; j < c.sizes.kv_len; ++j) {
    const float weight = weights[static_cast<size_t>(j)] / sum;
    for (int64_t d = 0; d < c.sizes.head_dim_v; ++d) {
      output[static_cast<size_t>(d)] += weight * c.v(0, h, j, d);
    }
  }
  return output;
}

TEST_P(AttentionAccuracy, ErrorIsAtMostTwiceThatOfThePlainComputation) {
  for (const auto& [len, dim, size] : std::vector<std::tuple<int64_t, int64_t, float>>{
           {65, 64, 1.0f}, {700, 64, 1.0f}, {300, 256, 1.0f}, {300, 16, 4.0f}}) {
    AttentionCase c = MakeCase({.num_heads = 1,
                                .num_kv_heads = 1,
                                .q_len = 40,
                                .kv_len = len,
                                .head_dim = dim,
                                .head_dim_v = 24});
    c.q.ForEach([size](int64_t, int64_t, int64_t, int64_t, float& x) { x *= size; });
    const std::vector<double> expected = RunOracle(c).at("output");
    const std::vector<float> actual = RunAttention(c).output.Elements();
    double error = 0, plain_error = 0, max_v = 0;
    for (const float v : c.v.Elements()) max_v = std::max<double>(max_v, std::abs(v));
    for (int64_t i = 0; i < 40; ++i) {
      const std::vector<float> plain = PlainRow(c, 0, i);
      for (size_t d = 0; d < plain.size(); ++d) {
        const size_t n = static_cast<size_t>(i) * plain.size() + d;
        error = std::max(error, std::abs(actual[n] - expected[n]));
        plain_error = std::max(plain_error, std::abs(plain[d] - expected[n]));
      }
    }
    EXPECT_LE(error, std::max(2 * plain_error, 4 * 0x1p-24 * max_v))
        << "plain error " << plain_error << ", " << c.Describe();
  }
}

}  // namespace
}  // namespace heed::testing
