// Linear attention: against the oracle over odd sizes, states and lengths, and its limits.
#include <gtest/gtest.h>

#include <cmath>

#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class LinearAttention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(LinearAttention);

TEST_P(LinearAttention, MatchesReference) {
  for (const bool causal : {false, true}) {
    const auto add = [causal](RequestBuilder& builder, const RecurrentSizes&) {
      builder.Param("causal", causal);
    };
    ExpectRowMatchesOracle("linear", add);
    ExpectStatesAndLengthsMatchOracle("linear", add, 1);  // and the sum of the keys
  }
}

TEST_P(LinearAttention, EveryFeatureMapMatchesReference) {
  const RecurrentSizes s = {1, 2, 1, 70, 20, 12};
  for (const char* map : {"elu_plus_one", "relu", "softmax", "identity"}) {
    for (const char* sum : {"one", "free"}) {
      // Signed weights may sum to almost nothing: only positive features are divided.
      if (std::string(map) == "identity" && std::string(sum) == "one") continue;
      for (const bool causal : {false, true}) {
        RequestBuilder builder = RecurrentRequest("linear", s, 3);
        builder.Param("feature_map", map).Param("weight_sum", sum).Param("causal", causal);
        ExpectMatchesOracle(builder.request(), std::string(map) + ", weights " + sum);
      }
    }
  }
}

TEST_P(LinearAttention, GivesTheNumbersOfItsDefinition) {
  // elu + 1 of (1, 0) is (2, 1), of (0, -ln 2) is (1, 1/2); weights 2*2 + 1*1 and 2*1 + 1*1/2.
  RequestBuilder builder("linear");
  builder.Floats("q", {1, 1, 2, 2}, {1, 0, 1, 0})
      .Floats("k", {1, 1, 2, 2}, {1, 0, 0, -std::log(2.0f)})
      .Floats("v", {1, 1, 2, 1}, {3, 9});
  ExpectResultsNear(RunByName(builder.request()).at("output"), {5, 5}, 1e-6, "5 : 2.5");
  builder.Param("causal", true);
  ExpectResultsNear(RunByName(builder.request()).at("output"), {3, 5}, 1e-6, "causal");
}

TEST_P(LinearAttention, RowsWithoutWeightAreZeros) {
  RequestBuilder builder("linear");
  builder.Floats("q", {1, 1, 2, 1}, {-1, 1})
      .Floats("k", {1, 1, 2, 1}, {1, 1})
      .Floats("v", {1, 1, 2, 1}, {3, 9})
      .Param("feature_map", "relu");
  EXPECT_EQ(RunByName(builder.request()).at("output"), (std::vector<double>{0, 6}));
}

}  // namespace
}  // namespace heed::testing
