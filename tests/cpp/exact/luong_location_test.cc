// Location attention: the rows of a matrix stand where keys would.
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

class LuongLocation : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(LuongLocation);

std::vector<float> Numbers(size_t count, uint64_t seed, float size = 1) {
  Random random(seed);
  std::vector<float> numbers(count);
  for (float& x : numbers) x = size * random.Normal();
  return numbers;
}

RequestBuilder Small(bool per_head) {
  RequestBuilder builder("luong_location");
  builder.Floats("q", {2, 4, 5, 6}, Numbers(240, 1)).Floats("v", {2, 2, 70, 4}, Numbers(1120, 3));
  if (per_head) {
    builder.Floats("location_weight", {2, 70, 6}, Numbers(840, 4));
  } else {
    builder.Floats("location_weight", {70, 6}, Numbers(420, 4));
  }
  return builder;
}

TEST_P(LuongLocation, MatchesReference) {
  for (const bool per_head : {false, true}) {
    RequestBuilder builder = Small(per_head);
    builder.Param("return_weights", true).Integers("key_lengths", {2}, {70, 33});
    const Values actual = RunByName(builder.request());
    const Values expected = RunOracle(builder.request());
    EXPECT_THAT(actual.at("output"),
                Pointwise(DoubleNear(5 * kAttentionMaxError), expected.at("output")));
    EXPECT_THAT(actual.at("weights"),
                Pointwise(DoubleNear(kAttentionMaxError), expected.at("weights")));
  }
}

TEST_P(LuongLocation, GivesHandComputedNumbers) {
  // softmax(log 1, log 3) picks 1/4 and 3/4.
  RequestBuilder builder("luong_location");
  builder.Floats("q", {1, 1, 1, 1}, {2})
      .Floats("v", {1, 1, 2, 1}, {8, 16})
      .Floats("location_weight", {2, 1}, {0, static_cast<float>(std::log(3.0) / 2)});
  EXPECT_NEAR(RunByName(builder.request()).at("output")[0], 14.0, 1e-5);
}

TEST_P(LuongLocation, ReducesToLuongDotWithTheRowsAsKeys) {
  RequestBuilder dot("luong_dot");
  const std::vector<float> rows = Numbers(420, 4);
  std::vector<float> keys;
  for (int copy = 0; copy < 4; ++copy) keys.insert(keys.end(), rows.begin(), rows.end());
  dot.Floats("q", {2, 4, 5, 6}, Numbers(240, 1))
      .Floats("k", {2, 2, 70, 6}, keys)
      .Floats("v", {2, 2, 70, 4}, Numbers(1120, 3));
  EXPECT_EQ(RunByName(dot.request()).at("output"), RunByName(Small(false).request()).at("output"));
}

TEST(LuongLocationErrors, NameTheWeight) {
  RequestBuilder builder("luong_location");
  builder.Floats("q", {1, 1, 1, 2}, {1, 1}).Floats("v", {1, 1, 1, 1}, {0});
  try {
    PlanOutputs(builder.request());
    ADD_FAILURE() << "a missing weight was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("location_weight"));
  }
}

}  // namespace
}  // namespace heed::testing
