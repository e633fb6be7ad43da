// Scaled dot-product attention: numbers from outside, and the limits in which it is something else.
#include <cmath>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "request_builder.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

class ScaledDotProduct : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(ScaledDotProduct);

void ExpectNear(const std::vector<double>& actual, const std::vector<double>& expected,
                double error) {
  EXPECT_THAT(actual, Pointwise(DoubleNear(error), expected));
}

RequestBuilder TextbookExample() {
  RequestBuilder builder("scaled_dot_product");
  builder.Floats("q", {1, 1, 2, 2}, {1, 0, 0, 1})
      .Floats("k", {1, 1, 3, 2}, {1, 0, 1, 1, 0, 1})
      .Floats("v", {1, 1, 3, 2}, {1, 0, 0, 2, 1, 1})
      .Param("return_weights", true)
      .Param("return_lse", true);
  return builder;
}

TEST_P(ScaledDotProduct, GivesTheWeightsOfTheTextbookExample) {
  const Values values = RunByName(TextbookExample().request());
  const double e = std::exp(1 / std::sqrt(2.0)), a = e / (2 * e + 1), b = 1 / (2 * e + 1);
  ExpectNear(values.at("weights"), {a, a, b, b, a, a}, 1e-7);
  ExpectNear(values.at("weights"), {0.401, 0.401, 0.198, 0.198, 0.401, 0.401}, 5e-4);
  ExpectNear(values.at("output"), {a + b, 2 * a + b, a + b, 3 * a}, 2e-7);
  ExpectNear(values.at("lse"), {std::log(2 * e + 1), std::log(2 * e + 1)}, 3e-7);
}

TEST_P(ScaledDotProduct, MatchesTheUnscaledDotAttentionOfKeras) {
  // keras-team/keras, attention_test.py::test_attention_correctness
  RequestBuilder builder("scaled_dot_product");
  builder.Floats("q", {1, 1, 2, 2}, {1, 0, 0, 1})
      .Floats("k", {1, 1, 2, 2}, {0, 1, 1, 0})
      .Floats("v", {1, 1, 2, 2}, {1, 2, 3, 4})
      .Param("scale", 1.0)
      .Param("return_weights", true);
  const Values values = RunByName(builder.request());
  ExpectNear(values.at("output"), {2.462, 3.462, 1.538, 2.538}, 1e-3);
  ExpectNear(values.at("weights"), {0.269, 0.731, 0.731, 0.269}, 1e-3);
}

TEST_P(ScaledDotProduct, MatchesTheMaskedAttentionOfKeras) {
  // keras-team/keras, attention_test.py::test_attention_with_mask: the second key is masked.
  RequestBuilder builder("scaled_dot_product");
  builder.Floats("q", {1, 1, 2, 2}, {1, 0, 0, 1})
      .Floats("k", {1, 1, 2, 2}, {1, 1, 1, 1})
      .Floats("v", {1, 1, 2, 2}, {1, 1, 1, 1})
      .Bytes("keep", {1, 2}, {1, 0})
      .Param("scale", 1.0)
      .Param("return_weights", true);
  const Values values = RunByName(builder.request());
  EXPECT_THAT(values.at("output"), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(values.at("weights"), ElementsAre(1, 0, 1, 0));
}

TEST_P(ScaledDotProduct, GivesTheRawScoresOfAllennlp) {
  // allenai/allennlp, dot_product_matrix_attention_test.py
  RequestBuilder builder("scaled_dot_product");
  builder.Floats("q", {2, 1, 2, 3}, {0, 0, 0, 4, 5, 6, -7, -8, -9, 10, 11, 12})
      .Floats("k", {2, 1, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
      .Floats("v", {2, 1, 2, 1}, {0, 0, 0, 0})
      .Param("scale", 1.0)
      .Param("return_scores", "raw");
  EXPECT_THAT(RunByName(builder.request()).at("scores"),
              ElementsAre(0, 0, 32, 77, -194, -266, 266, 365));
  // allenai/allennlp, scaled_dot_product_attention_test.py: scaling_factor 9 divides by its root.
  RequestBuilder scaled("scaled_dot_product");
  scaled.Floats("q", {2, 1, 1, 3}, {0, 0, 0, 1, 1, 1})
      .Floats("k", {2, 1, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
      .Floats("v", {2, 1, 2, 1}, {0, 0, 0, 0})
      .Param("scale", 1.0 / 3)
      .Param("return_scores", "raw");
  ExpectNear(RunByName(scaled.request()).at("scores"), {0, 0, 8, 11}, 2e-6);
}

TEST_P(ScaledDotProduct, AlibiOfOneLateQueryIsThatOfKerasHub) {
  // keras-team/keras-hub, alibi_bias_test.py: 8 heads, one query at the last of three keys; the
  // bias of the first key is listed.
  RequestBuilder builder("scaled_dot_product");
  builder.Floats("q", {1, 8, 1, 1}, std::vector<float>(8, 0.0f))
      .Floats("k", {1, 8, 3, 1}, std::vector<float>(24, 0.0f))
      .Floats("v", {1, 8, 3, 1}, std::vector<float>(24, 0.0f))
      .Floats("alibi_slopes", {8}, AlibiSlopes(8))
      .Param("query_offset", "end")
      .Param("return_scores", "biased");
  const std::vector<double> scores = RunByName(builder.request()).at("scores");
  const double first[] = {-1.0, -0.5, -0.25, -0.125, -0.0625, -0.03125, -0.015625, -0.0078125};
  for (size_t h = 0; h < 8; ++h) {
    EXPECT_EQ(scores[3 * h], first[h]);
    EXPECT_EQ(scores[3 * h + 2], 0.0);
  }
}

TEST_P(ScaledDotProduct, LengthsOfTwoAndThreeMaskTheTail) {
  RequestBuilder builder("scaled_dot_product");
  builder.Floats("q", {2, 1, 1, 1}, {0, 0})
      .Floats("k", {2, 1, 4, 1}, std::vector<float>(8, 1.0f))
      .Floats("v", {2, 1, 4, 1}, {1, 3, 50, 50, 1, 2, 6, 50})
      .Integers("key_lengths", {2}, {2, 3})
      .Param("return_weights", true);
  const Values values = RunByName(builder.request());
  ExpectNear(values.at("output"), {2, 3}, 1e-6);
  ExpectNear(values.at("weights"), {0.5, 0.5, 0, 0, 1 / 3.0, 1 / 3.0, 1 / 3.0, 0}, 1e-7);
}

TEST_P(ScaledDotProduct, ReducesToAverage) {
  AttentionCase c = MakeCase({.q_len = 9, .kv_len = 150, .head_dim = 16, .head_dim_v = 8});
  c.scalars.scale = 0.0;
  const Results r = RunAttention(c);
  for (int64_t d = 0; d < 8; ++d) {
    double mean = 0;
    for (int64_t j = 0; j < 150; ++j) mean += c.v(0, 1, j, d) / 150.0;
    EXPECT_NEAR(r.output(0, 1, 4, d), mean, 1e-6);
  }
}

TEST_P(ScaledDotProduct, ReducesToSoftmaxOffByOneWithASinkOfZero) {
  RequestBuilder builder("scaled_dot_product");
  builder.Floats("q", {1, 1, 1, 1}, {1})
      .Floats("k", {1, 1, 2, 1}, {1, 2})
      .Floats("v", {1, 1, 2, 1}, {1, 1})
      .Floats("sinks", {1}, {0});
  const double sum = std::exp(1) + std::exp(2);
  ExpectNear(RunByName(builder.request()).at("output"), {sum / (1 + sum)}, 1e-7);
}

TEST_P(ScaledDotProduct, ReducesToHardChoiceForLargeScale) {
  AttentionCase c = MakeCase({.q_len = 20, .kv_len = 150, .head_dim = 16, .head_dim_v = 8});
  c.scalars.scale = 1e4;
  const Results r = RunAttention(c);
  const std::vector<double> scores = RunOracle(c).at("scores");
  for (int64_t i = 0; i < 20; ++i) {
    const auto row = scores.begin() + (20 + i) * 150;  // head 1
    const int64_t best = std::max_element(row, row + 150) - row;
    EXPECT_EQ(r.output(0, 1, i, 3), c.v(0, 1, best, 3)) << i;
  }
}

}  // namespace
}  // namespace heed::testing
