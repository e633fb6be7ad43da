// State space duality: against the oracle over odd sizes, states and lengths, and its limits.
#include <gtest/gtest.h>

#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class Mamba2 : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Mamba2);

// What the row is given beside q, k and v.
void AddInputsOfRow(RequestBuilder& builder, const RecurrentSizes& s) {
  AddLogDecay(builder, s);
  AddBeta(builder, s);
  builder.Floats("skip", {s.num_heads}, Betas(s.num_heads, 3));
}

TEST_P(Mamba2, MatchesReference) { ExpectRowMatchesOracle("mamba2", AddInputsOfRow); }

TEST_P(Mamba2, StatesAndLengthsMatchReference) {
  ExpectStatesAndLengthsMatchOracle("mamba2", AddInputsOfRow);
}

TEST_P(Mamba2, WithoutGatesIsLinearAttention) {
  const RecurrentSizes s = {1, 2, 1, 80, 8, 8};
  RequestBuilder linear = RecurrentRequest("linear", s, 4);
  linear.Param("feature_map", "identity").Param("weight_sum", "free").Param("causal", true);
  ExpectResultsNear(RunByName(RecurrentRequest("mamba2", s, 4).request()).at("output"),
                    RunByName(linear.request()).at("output"), 1e-5, "no gates");
}

}  // namespace
}  // namespace heed::testing
