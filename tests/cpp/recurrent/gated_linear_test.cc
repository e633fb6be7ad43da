// Gated linear attention: against the oracle over odd sizes, states and lengths, and its limits.
#include <gtest/gtest.h>

#include <limits>

#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class GatedLinear : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(GatedLinear);

TEST_P(GatedLinear, MatchesReference) {
  ExpectRowMatchesOracle("gated_linear", AddChannelLogDecay);
}

TEST_P(GatedLinear, StatesAndLengthsMatchReference) {
  ExpectStatesAndLengthsMatchOracle("gated_linear", AddChannelLogDecay);
}

TEST_P(GatedLinear, ReducesToMamba2WhenChannelsShareTheirGate) {
  const RecurrentSizes s = {1, 2, 2, 100, 8, 8};
  const std::vector<float> gates = LogDecays(2 * 100, 6);
  std::vector<float> channels;
  for (const float gate : gates) channels.insert(channels.end(), 8, gate);
  RequestBuilder gated = RecurrentRequest("gated_linear", s, 4);
  gated.Floats("channel_log_decay", {1, 2, 100, 8}, channels).Param("scale", 1.0);
  RequestBuilder shared = RecurrentRequest("mamba2", s, 4);
  shared.Floats("log_decay", {1, 2, 100}, gates);
  ExpectResultsNear(RunByName(gated.request()).at("output"),
                    RunByName(shared.request()).at("output"), 2e-5, "equal gates");
}

TEST_P(GatedLinear, StrongGatesNeitherOverflowNorLeak) {
  const RecurrentSizes s = {1, 1, 1, 150, 6, 5};
  std::vector<float> gates = LogDecays(150 * 6, 6);
  for (size_t n = 0; n < gates.size(); ++n) {
    if (n % 3 == 0) gates[n] = -60;
    if (n % 7 == 0) gates[n] = -std::numeric_limits<float>::infinity();
  }
  RequestBuilder builder = RecurrentRequest("gated_linear", s, 4);
  builder.Floats("channel_log_decay", {1, 1, 150, 6}, gates).Param("return_state", true);
  ExpectMatchesOracle(builder.request(), "gates of -60 and -inf");
}

}  // namespace
}  // namespace heed::testing
