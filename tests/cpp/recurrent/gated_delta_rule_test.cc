// The gated delta rule: against the oracle over odd sizes, states and lengths, and its limits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class GatedDeltaRule : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(GatedDeltaRule);

// What the row needs beside q, k and v.
void AddGates([[maybe_unused]] RequestBuilder& builder, [[maybe_unused]] const RecurrentSizes& s) {
  builder.Floats("log_decay", {s.batch, s.num_kv_heads, s.len},
                 LogDecays(s.batch * s.num_kv_heads * s.len, 8));
  builder.Floats("beta", {s.batch, s.num_kv_heads, s.len},
                 Betas(s.batch * s.num_kv_heads * s.len, 9));
}

TEST_P(GatedDeltaRule, MatchesReference) {
  uint64_t seed = 1;
  for (const RecurrentSizes& s : ManySizes()) {
    for (const double chunk_len : {64.0, 1.0, 7.0, 33.0}) {
      RequestBuilder builder = RecurrentRequest("gated_delta_rule", s, seed++);
      AddGates(builder, s);
      builder.Param("chunk_len", chunk_len).Param("return_state", true);

      ExpectMatchesOracle(builder.request(), "length " + std::to_string(s.len) + ", chunks of " +
                                                 std::to_string(chunk_len));
    }
  }
}

TEST_P(GatedDeltaRule, StatesAndLengthsMatchReference) {
  const RecurrentSizes s = {2, 4, 2, 90, 12, 10};
  RequestBuilder builder = RecurrentRequest("gated_delta_rule", s, 77);
  AddGates(builder, s);

  const int64_t cols = s.head_dim_v;
  std::vector<float> state = Betas(s.batch * s.num_kv_heads * s.head_dim * cols, 5);
  builder.Floats("initial_state", {s.batch, s.num_kv_heads, s.head_dim, cols}, state)
      .Integers("key_lengths", {2}, {0, 70})
      .Param("return_state", true);
  ExpectMatchesOracle(builder.request(), "lengths 0 and 70");
}

TEST_P(GatedDeltaRule, ReducesToTheDeltaRuleWithoutDecay) {
  const RecurrentSizes s = {1, 2, 1, 80, 8, 8};
  ExpectResultsNear(RunByName(RecurrentRequest("gated_delta_rule", s, 4).request()).at("output"),
                    RunByName(RecurrentRequest("delta_rule", s, 4).request()).at("output"), 0,
                    "no decay");
}

}  // namespace
}  // namespace heed::testing
