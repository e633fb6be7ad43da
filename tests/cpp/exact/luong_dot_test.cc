// Dot attention without a scale: Luong's first score.
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

class LuongDot : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(LuongDot);

AttentionCase Small() {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = 33,
                              .kv_len = 300,
                              .head_dim = 24,
                              .head_dim_v = 9});
  return c;
}

TEST_P(LuongDot, GivesTheNumbersOfKeras) {
  // keras-team/keras, attention_test.py, test_attention_correctness: the unscaled dot product.
  RequestBuilder builder("luong_dot");
  builder.Floats("q", {1, 1, 2, 2}, {1, 0, 0, 1})
      .Floats("k", {1, 1, 2, 2}, {0, 1, 1, 0})
      .Floats("v", {1, 1, 2, 2}, {1, 2, 3, 4})
      .Param("return_weights", true);
  const Values values = RunByName(builder.request());
  const std::vector<double> output = {2.462, 3.462, 1.538, 2.538};
  const std::vector<double> weights = {0.269, 0.731, 0.731, 0.269};
  EXPECT_THAT(values.at("output"), Pointwise(DoubleNear(1e-3), output));
  EXPECT_THAT(values.at("weights"), Pointwise(DoubleNear(1e-3), weights));
}

TEST_P(LuongDot, ReducesToScaledDotProductWithAScaleOfOne) {
  AttentionCase c = Small();
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::End();
  Request request = c.request();
  request.id = "luong_dot";
  const Values luong = RunByName(request);
  c.scalars.scale = 1.0;
  EXPECT_EQ(luong.at("output"), RunByName(c.request()).at("output"));
  EXPECT_EQ(RunOracle(request).at("output"), RunOracle(c.request()).at("output"));
}

TEST_P(LuongDot, MatchesReference) {
  AttentionCase c = Small();
  c.scalars.scale = 1.0;
  ExpectMatchesReference(c);
}

TEST_P(LuongDot, RefusesAScale) {
  Request request = Small().request();
  request.id = "luong_dot";
  request.params.push_back({"scale", 2.0});
  EXPECT_THROW(PlanOutputs(request), Error);
}

}  // namespace
}  // namespace heed::testing
