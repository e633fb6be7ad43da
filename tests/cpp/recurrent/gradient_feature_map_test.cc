// Gradients through users' feature maps: of expressions against central differences of the float64
// oracle, of callables against a map that has a word.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "backward_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/gradient.h"
#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class UserFeatureGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(UserFeatureGradient);

RequestBuilder RequestOf(const RecurrentSizes& s, const std::string& feature_mod, bool causal) {
  RequestBuilder builder = RecurrentRequest("linear", s, 3);
  builder.Param("feature_mod", feature_mod).Param("causal", causal).Param("scale", 0.7);
  builder.Param("return_state", true).Param("weight_sum", "one");
  builder.Floats("captured.weight", {s.num_heads, s.head_dim}, Betas(s.num_heads * s.head_dim, 4));
  return builder;
}

constexpr const char* kMaps[] = {"exp(x)", "isKey ? exp(x / 2) : sigmoid(x) + b",
                                 "sqrt(1 + x * x) * weight[h, d] + 0.1 * d",
                                 "x > 0 ? x + 1 : exp(x)", "2"};

TEST_P(UserFeatureGradient, MatchesDifferencesOfReference) {
  for (const char* map : kMaps) {
    for (const bool causal : {false, true}) {
      RequestBuilder builder = RequestOf({2, 4, 2, 7, 3, 5}, map, causal);
      ExpectElementsMatch(builder.request(), kRecurrentGradientMaxError, map);
      builder.Integers("key_lengths", {2}, {0, 4});
      ExpectElementsMatch(builder.request(), kRecurrentGradientMaxError, map);
    }
  }
}

// Around chunks, and wider than the interpreter's rows.
TEST_P(UserFeatureGradient, MatchesAlongDirections) {
  for (const RecurrentSizes& s :
       {RecurrentSizes{1, 3, 1, 65, 17, 9}, RecurrentSizes{1, 1, 1, 5, 300, 4}}) {
    ExpectDirectionsMatch(RequestOf(s, kMaps[2], true).request(), kRecurrentGradientMaxError,
                          std::to_string(s.head_dim));
  }
}

TEST_P(UserFeatureGradient, SameBitsForAnyNumberOfThreads) {
  ExpectSameGradientsForAnyThreads(RequestOf({2, 6, 3, 100, 8, 8}, kMaps[1], true).request(),
                                   kMaps[1]);
}

TEST_P(UserFeatureGradient, TokensBeyondTheirLengthGetExactlyZero) {
  std::vector<float> k = Betas(6 * 3, 2), v = Betas(6 * 2, 3);
  std::fill(k.begin() + 4 * 3, k.end(), kNan);
  std::fill(v.begin() + 4 * 2, v.end(), kNan);
  RequestBuilder builder("linear");
  builder.Floats("q", {1, 1, 6, 3}, Betas(18, 1))
      .Floats("k", {1, 1, 6, 3}, k)
      .Floats("v", {1, 1, 6, 2}, v)
      .Integers("key_lengths", {1}, {4})
      .Param("feature_mod", "exp(x)");
  const Backward backward(builder.request());
  const Values gradients = backward.gradients.ByName();
  for (const auto& [name, gradient] : gradients) {
    for (const double x : gradient) EXPECT_TRUE(std::isfinite(x)) << name;
  }
  EXPECT_THAT(std::vector(gradients.at("k").begin() + 12, gradients.at("k").end()),
              ::testing::Each(0.0));
}

void Softmax(const FeatureRows& rows) {
  for (size_t r = 0; r < rows.num_rows; ++r) {
    float* row = rows.values + r * rows.row_stride;
    double sum = 0;
    for (size_t c = 0; c < rows.num_dims; ++c) sum += std::exp(double{row[c]});
    for (size_t c = 0; c < rows.num_dims; ++c) {
      row[c] = static_cast<float>(std::exp(double{row[c]}) / sum);
    }
  }
}

void SoftmaxBackward(const FeatureRows& rows, const float* arriving) {
  Softmax(rows);
  for (size_t r = 0; r < rows.num_rows; ++r) {
    float* row = rows.values + r * rows.row_stride;
    const float* from = arriving + r * rows.row_stride;
    double mean = 0;
    for (size_t c = 0; c < rows.num_dims; ++c) mean += double{row[c]} * double{from[c]};
    for (size_t c = 0; c < rows.num_dims; ++c) {
      row[c] = static_cast<float>(double{row[c]} * (double{from[c]} - mean));
    }
  }
}

// Elements of a row may depend on each other.
TEST_P(UserFeatureGradient, CallablesHaveAWayBackOfTheirOwn) {
  constexpr int64_t kLen = 70, kDim = 9;
  const std::vector<float> q = Betas(kLen * kDim, 1), k = Betas(kLen * kDim, 2),
                           v = Betas(kLen * kDim, 3), d_out = Betas(kLen * kDim, 4);
  const auto rows = [](const std::vector<float>& from) {
    return Contiguous<const float>(from.data(), 1, 1, kLen, kDim);
  };
  const auto run = [&](const RecurrentOptions& options, RecurrentGradients to) {
    std::vector<float> both(2 * q.size(), kNan);
    to.d_q = Contiguous(both.data(), 1, 1, kLen, kDim);
    to.d_k = Contiguous(both.data() + q.size(), 1, 1, kLen, kDim);
    RecurrentBackward(rows(q), rows(k), rows(v), rows(d_out), options, to);
    return std::vector<double>(both.begin(), both.end());
  };
  RecurrentOptions options;
  options.normalize = true;
  options.feature_map = FeatureMap::kSoftmax;
  const std::vector<double> expected = run(options, {});
  options.feature_map = FeatureMap::kUser;
  options.feature_mod = Softmax;
  const std::vector<double> actual = run(options, {.feature_mod_backward = SoftmaxBackward});
  ExpectResultsNear(actual, expected, 2 * kRecurrentGradientMaxError, "softmax");
}

}  // namespace
}  // namespace heed::testing
