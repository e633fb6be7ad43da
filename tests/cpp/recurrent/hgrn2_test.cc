// HGRN2: against the oracle over odd sizes, states and lengths, and its limits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class Hgrn2 : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Hgrn2);

TEST_P(Hgrn2, MatchesReference) { ExpectRowMatchesOracle("hgrn2", AddChannelLogDecay); }

TEST_P(Hgrn2, StatesAndLengthsMatchReference) {
  ExpectStatesAndLengthsMatchOracle("hgrn2", AddChannelLogDecay);
}

// Keys 1 - f would have no correct digit as a difference of floats.
TEST_P(Hgrn2, WeakAndStrongGatesMatchReference) {
  const RecurrentSizes s = {1, 1, 1, 130, 8, 8};
  const int64_t count = s.len * s.head_dim;
  for (const float strength : {1e-7f, 1e-3f, 2.5f, 1e3f, std::numeric_limits<float>::infinity()}) {
    std::vector<float> gates = LogDecays(count, 8);
    for (float& gate : gates) gate *= strength;
    RequestBuilder builder = RecurrentRequest("hgrn2", s, 4);
    builder.Floats("channel_log_decay", {1, 1, s.len, s.head_dim}, gates);
    ExpectMatchesOracle(builder.request(), "gates times " + std::to_string(strength));
  }
}

TEST_P(Hgrn2, AveragesValuesByItsGates) {
  // S = f S + (1 - f) v with f = 1/2: halfway to each value.
  RequestBuilder builder("hgrn2");
  const float half = -std::log(2.0f);
  builder.Floats("q", {1, 1, 3, 1}, {1, 1, 1})
      .Floats("channel_log_decay", {1, 1, 3, 1}, {half, half, half})
      .Floats("v", {1, 1, 3, 1}, {8, 0, 4});
  ExpectResultsNear(RunByName(builder.request()).at("output"), {4, 2, 3}, 1e-6, "4, 2, 3");
}

TEST_P(Hgrn2, ReducesToGatedLinearAttentionWithSuchKeys) {
  const std::vector<float> gates = LogDecays(80 * 8, 6);
  std::vector<float> keys;
  for (const float gate : gates) keys.push_back(-std::expm1(gate));
  const std::vector<float> q = LogDecays(2 * 80 * 8, 1), v = Betas(80 * 8, 2);
  RequestBuilder hgrn("hgrn2"), gated("gated_linear");
  for (RequestBuilder* builder : {&hgrn, &gated}) {
    builder->Floats("q", {1, 2, 80, 8}, q)
        .Floats("v", {1, 1, 80, 8}, v)
        .Floats("channel_log_decay", {1, 1, 80, 8}, gates)
        .Param("scale", 1.0);
  }
  gated.Floats("k", {1, 1, 80, 8}, keys);
  ExpectResultsNear(RunByName(hgrn.request()).at("output"), RunByName(gated.request()).at("output"),
                    1e-5, "keys 1 - f");
}

}  // namespace
}  // namespace heed::testing
