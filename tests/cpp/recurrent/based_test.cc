// Based: against the oracle over odd sizes, states and lengths, and its limits.
#include <gtest/gtest.h>

#include <cmath>

#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class Based : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Based);

TEST_P(Based, MatchesReference) {
  for (const RecurrentSizes& s :
       {RecurrentSizes{1, 1, 1, 1, 1, 1}, {2, 4, 2, 63, 7, 16}, {1, 2, 1, 130, 16, 9}}) {
    for (const bool causal : {false, true}) {
      RequestBuilder builder = RecurrentRequest("based", s, 5);
      builder.Param("causal", causal).Param("return_state", true);
      ExpectMatchesOracle(builder.request(), "length " + std::to_string(s.len));
    }
  }
}

// A state that keys have written: weights by any other may sum to nothing.
TEST_P(Based, StatesAndLengthsMatchReference) {
  const RecurrentSizes s = {2, 4, 2, 90, 12, 10};
  RequestBuilder before = RecurrentRequest("based", s, 8);
  before.Param("return_state", true);
  const std::vector<double> state = RunOracle(before.request()).at("state");
  RequestBuilder builder = RecurrentRequest("based", s, 77);
  builder.Floats("initial_state", {2, 2, 91, 11}, {state.begin(), state.end()})
      .Integers("key_lengths", {2}, {0, 70})
      .Param("causal", true)
      .Param("return_state", true);
  ExpectMatchesOracle(builder.request(), "lengths 0 and 70");
}

TEST_P(Based, ScalesOfAnySignMatchReference) {
  for (const double scale : {-0.7, 0.0, 1.0}) {
    RequestBuilder builder = RecurrentRequest("based", {1, 2, 1, 70, 6, 5}, 3);
    builder.Param("scale", scale).Param("causal", true);
    ExpectMatchesOracle(builder.request(), "scale " + std::to_string(scale));
  }
}

TEST_P(Based, GivesTheNumbersOfItsDefinition) {
  // Products 0 and 2: weights 1 and 1 + 2 + 2.
  RequestBuilder builder("based");
  builder.Floats("q", {1, 1, 1, 1}, {1})
      .Floats("k", {1, 1, 2, 1}, {0, 2})
      .Floats("v", {1, 1, 2, 1}, {3, 9});
  ExpectResultsNear(RunByName(builder.request()).at("output"), {8}, 1e-6, "1 : 5");
}

TEST_P(Based, NearsExactAttentionAsScoresVanish) {
  const RecurrentSizes s = {1, 2, 2, 70, 8, 8};
  double before = 10;
  for (const double scale : {0.2, 0.02}) {
    RequestBuilder based = RecurrentRequest("based", s, 4),
                   exact = RecurrentRequest("attention", s, 4);
    based.Param("scale", scale).Param("causal", true);
    exact.Param("scale", scale).Param("causal", true);
    const auto a = RunByName(based.request()).at("output");
    const auto b = RunByName(exact.request()).at("output");
    double far = 0;
    for (size_t n = 0; n < a.size(); ++n) far = std::max(far, std::abs(a[n] - b[n]));
    EXPECT_LT(far, before / 500) << scale;  // of the third order
    before = far;
  }
}

}  // namespace
}  // namespace heed::testing
