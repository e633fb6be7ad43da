// The gated delta rule: against the oracle over odd sizes, states and lengths, and its limits.
#include <gtest/gtest.h>

#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class GatedDeltaRule : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(GatedDeltaRule);

// What the row is given beside q, k and v.
void AddInputsOfRow(RequestBuilder& builder, const RecurrentSizes& s) {
  AddLogDecay(builder, s);
  AddBeta(builder, s);
}

TEST_P(GatedDeltaRule, MatchesReference) {
  ExpectRowMatchesOracle("gated_delta_rule", AddInputsOfRow);
}

TEST_P(GatedDeltaRule, StatesAndLengthsMatchReference) {
  ExpectStatesAndLengthsMatchOracle("gated_delta_rule", AddInputsOfRow);
}

TEST_P(GatedDeltaRule, ReducesToTheDeltaRuleWithoutDecay) {
  const RecurrentSizes s = {1, 2, 1, 80, 8, 8};
  ExpectResultsNear(RunByName(RecurrentRequest("gated_delta_rule", s, 4).request()).at("output"),
                    RunByName(RecurrentRequest("delta_rule", s, 4).request()).at("output"), 0,
                    "no decay");
}

}  // namespace
}  // namespace heed::testing
