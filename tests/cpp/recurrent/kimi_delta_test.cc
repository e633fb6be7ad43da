// Kimi delta attention: against the oracle over odd sizes, states and lengths, and its limits.
#include <gtest/gtest.h>

#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class KimiDelta : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(KimiDelta);

// What the row is given beside q, k and v.
void AddInputsOfRow(RequestBuilder& builder, const RecurrentSizes& s) {
  AddChannelLogDecay(builder, s);
  AddBeta(builder, s);
}

TEST_P(KimiDelta, MatchesReference) { ExpectRowMatchesOracle("kimi_delta", AddInputsOfRow); }

TEST_P(KimiDelta, StatesAndLengthsMatchReference) {
  ExpectStatesAndLengthsMatchOracle("kimi_delta", AddInputsOfRow);
}

TEST_P(KimiDelta, ReducesToTheGatedDeltaRuleWhenChannelsShareTheirGate) {
  const RecurrentSizes s = {1, 1, 1, 100, 8, 8};
  const std::vector<float> gates = LogDecays(100, 6);
  std::vector<float> channels;
  for (const float gate : gates) channels.insert(channels.end(), 8, gate);
  RequestBuilder kimi = RecurrentRequest("kimi_delta", s, 4);
  kimi.Floats("channel_log_decay", {1, 1, 100, 8}, channels);
  RequestBuilder shared = RecurrentRequest("gated_delta_rule", s, 4);
  shared.Floats("log_decay", {1, 1, 100}, gates);
  ExpectResultsNear(RunByName(kimi.request()).at("output"),
                    RunByName(shared.request()).at("output"), 2e-5, "equal gates");
}

}  // namespace
}  // namespace heed::testing
