// cosFormer: against the oracle over odd sizes, states and lengths, and its limits.
#include <gtest/gtest.h>

#include <cmath>

#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class Cosformer : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Cosformer);

TEST_P(Cosformer, MatchesReference) {
  for (const bool causal : {false, true}) {
    const auto add = [causal](RequestBuilder& builder, const RecurrentSizes&) {
      builder.Param("causal", causal);
    };
    ExpectRowMatchesOracle("cosformer", add);
    ExpectStatesAndLengthsMatchOracle("cosformer", add, 1, 24);
  }
}

TEST_P(Cosformer, OffsetsAndPeriodsMatchReference) {
  const RecurrentSizes s = {2, 2, 1, 40, 9, 5};
  RequestBuilder builder = RecurrentRequest("cosformer", s, 3);
  builder.Param("position_offset", std::vector<double>{3, 60}).Param("period", 100.0);
  ExpectMatchesOracle(builder.request(), "3 and 60 of 100");
  RequestBuilder other = RecurrentRequest("cosformer", s, 3);
  other.Param("position_offset", 7.0);
  ExpectMatchesOracle(other.request(), "the default period reaches the last position");
}

TEST_P(Cosformer, GivesTheNumbersOfItsDefinition) {
  RequestBuilder builder("cosformer");
  builder.Floats("q", {1, 1, 2, 2}, {1, -5, 1, 0})
      .Floats("k", {1, 1, 2, 2}, {1, 7, 1, -2})
      .Floats("v", {1, 1, 2, 1}, {3, 9});
  const double weight = std::cos(std::acos(-1.0) / 4);  // a distance of 1, M = 2
  ExpectResultsNear(RunByName(builder.request()).at("output"),
                    {(3 + 9 * weight) / (1 + weight), (3 * weight + 9) / (1 + weight)}, 1e-6,
                    "1 and cos(pi / 4)");
}

TEST_P(Cosformer, ReducesToLinearAttentionWhereAllIsNear) {
  const RecurrentSizes s = {1, 2, 2, 80, 8, 8};
  RequestBuilder cosformer = RecurrentRequest("cosformer", s, 4);
  cosformer.Param("period", 1e9).Param("causal", true);
  RequestBuilder linear = RecurrentRequest("linear", s, 4);
  linear.Param("feature_map", "relu").Param("causal", true);
  ExpectResultsNear(RunByName(cosformer.request()).at("output"),
                    RunByName(linear.request()).at("output"), 1e-5, "M = 1e9");
}

}  // namespace
}  // namespace heed::testing
