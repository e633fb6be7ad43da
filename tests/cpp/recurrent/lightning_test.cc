// Lightning attention: against the oracle over odd sizes, states and lengths, and its limits.
#include <gtest/gtest.h>

#include <cmath>

#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class Lightning : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Lightning);

void AddNothing(RequestBuilder&, const RecurrentSizes&) {}

TEST_P(Lightning, MatchesReference) { ExpectRowMatchesOracle("lightning", AddNothing); }

TEST_P(Lightning, StatesAndLengthsMatchReference) {
  ExpectStatesAndLengthsMatchOracle("lightning", AddNothing);
}

TEST_P(Lightning, RatesOfAnyHeadCountMatchReference) {
  for (const int64_t heads : {3, 8, 12}) {
    RequestBuilder builder = RecurrentRequest("lightning", {1, heads, heads, 70, 8, 8}, 4);
    builder.Param("layer_depth", 0.25);
    ExpectMatchesOracle(builder.request(), std::to_string(heads) + " heads");
  }
}

TEST_P(Lightning, DecaysByTheSlopesOfAlibi) {
  // Of two heads the slopes are 1/16 and 1/256.
  RequestBuilder builder("lightning");
  builder.Floats("q", {1, 2, 2, 1}, {1, 1, 1, 1})
      .Floats("k", {1, 2, 2, 1}, {1, 0, 1, 0})
      .Floats("v", {1, 2, 2, 1}, {8, 0, 8, 0});
  ExpectResultsNear(RunByName(builder.request()).at("output"),
                    {8, 8 * std::exp(-1 / 16.0), 8, 8 * std::exp(-1 / 256.0)}, 1e-6, "slopes");
  builder.Param("layer_depth", 0.5);
  ExpectResultsNear(RunByName(builder.request()).at("output"),
                    {8, 8 * std::exp(-1 / 32.0), 8, 8 * std::exp(-1 / 512.0)}, 1e-6, "half");
}

TEST_P(Lightning, ReducesToRetentionOfTheSameRates) {
  const RecurrentSizes s = {1, 2, 2, 80, 8, 8};
  RequestBuilder retention = RecurrentRequest("retention", s, 4);
  retention.Floats("head_log_decay", {2}, {-1 / 16.0f, -1 / 256.0f}).Param("scale", 1.0);
  EXPECT_EQ(RunByName(RecurrentRequest("lightning", s, 4).request()).at("output"),
            RunByName(retention.request()).at("output"));
}

}  // namespace
}  // namespace heed::testing
