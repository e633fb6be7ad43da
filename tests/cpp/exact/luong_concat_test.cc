// Concat attention: additive attention with both weights in one matrix.
#include <cmath>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/registry.h"
#include "request_builder.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

class LuongConcat : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(LuongConcat);

std::vector<float> Numbers(size_t count, uint64_t seed, float size = 1) {
  Random random(seed);
  std::vector<float> numbers(count);
  for (float& x : numbers) x = size * random.Normal();
  return numbers;
}

RequestBuilder Small() {
  RequestBuilder builder("luong_concat");
  builder.Floats("q", {2, 4, 5, 6}, Numbers(240, 1))
      .Floats("k", {2, 2, 70, 3}, Numbers(840, 2))
      .Floats("v", {2, 2, 70, 4}, Numbers(1120, 3))
      .Floats("concat_weight", {8, 9}, Numbers(72, 4, 0.4f))
      .Floats("score_vector", {8}, Numbers(8, 5));
  return builder;
}

TEST_P(LuongConcat, MatchesReference) {
  RequestBuilder builder = Small();
  builder.Param("return_weights", true).Param("causal", true).Param("query_offset", 60.0);
  const Values actual = RunByName(builder.request());
  const Values expected = RunOracle(builder.request());
  // The logits stay below 8 sum |v_t|.
  EXPECT_THAT(actual.at("output"),
              Pointwise(DoubleNear(5 * kAttentionMaxError), expected.at("output")));
  EXPECT_THAT(actual.at("weights"),
              Pointwise(DoubleNear(kAttentionMaxError), expected.at("weights")));
}

TEST_P(LuongConcat, EveryHeadMayHaveAVectorOfItsOwn) {
  // Scores of two heads: 3 tanh(1) and -1 tanh(1).
  RequestBuilder builder("luong_concat");
  builder.Floats("q", {1, 2, 1, 1}, {1, 1})
      .Floats("k", {1, 1, 1, 1}, {0})
      .Floats("v", {1, 1, 1, 1}, {1})
      .Floats("concat_weight", {1, 2}, {1, 2})
      .Floats("score_vector", {2, 1}, {3, -1})
      .Param("return_scores", "raw");
  const std::vector<double> expected = {3 * std::tanh(1.0), -std::tanh(1.0)};
  EXPECT_THAT(RunByName(builder.request()).at("scores"), Pointwise(DoubleNear(1e-6), expected));
  EXPECT_THAT(RunOracle(builder.request()).at("scores"), Pointwise(DoubleNear(1e-12), expected));
}

TEST_P(LuongConcat, GivesHandComputedNumbers) {
  // W [q; k] = q + 2 k, v = 3: the scores are 3 tanh(1 + 2 k).
  RequestBuilder builder("luong_concat");
  builder.Floats("q", {1, 1, 1, 1}, {1})
      .Floats("k", {1, 1, 3, 1}, {0, -0.5f, 1})
      .Floats("v", {1, 1, 3, 1}, {0, 0, 1})
      .Floats("concat_weight", {1, 2}, {1, 2})
      .Floats("score_vector", {1}, {3})
      .Param("return_scores", "raw");
  const std::vector<double> expected = {3 * std::tanh(1.0), 0, 3 * std::tanh(3.0)};
  EXPECT_THAT(RunByName(builder.request()).at("scores"), Pointwise(DoubleNear(1e-6), expected));
}

TEST_P(LuongConcat, ReducesToAdditiveWithItsTwoHalves) {
  const std::vector<float> weight = Numbers(72, 4, 0.4f);
  std::vector<float> query, key;
  for (size_t t = 0; t < 8; ++t) {
    for (size_t d = 0; d < 9; ++d) (d < 6 ? query : key).push_back(weight[9 * t + d]);
  }
  RequestBuilder additive("additive");
  additive.Floats("q", {2, 4, 5, 6}, Numbers(240, 1))
      .Floats("k", {2, 2, 70, 3}, Numbers(840, 2))
      .Floats("v", {2, 2, 70, 4}, Numbers(1120, 3))
      .Floats("query_weight", {8, 6}, query)
      .Floats("key_weight", {8, 3}, key)
      .Floats("score_vector", {8}, Numbers(8, 5));
  EXPECT_EQ(RunByName(additive.request()).at("output"), RunByName(Small().request()).at("output"));
}

TEST(LuongConcatErrors, NameTheArgument) {
  RequestBuilder builder("luong_concat");
  builder.Floats("q", {1, 1, 1, 2}, {1, 1})
      .Floats("k", {1, 1, 1, 2}, {1, 0})
      .Floats("v", {1, 1, 1, 1}, {0})
      .Floats("score_vector", {1}, {1});
  try {
    PlanOutputs(builder.request());
    ADD_FAILURE() << "a missing weight was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("concat_weight"));
  }
  builder.Floats("concat_weight", {1, 3}, {1, 1, 1});
  try {
    PlanOutputs(builder.request());
    ADD_FAILURE() << "a narrow weight was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("concat_weight"));
  }
}

}  // namespace
}  // namespace heed::testing
