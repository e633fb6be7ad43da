// State space duality: against the oracle over odd sizes, states and lengths, and its limits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class Mamba2 : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Mamba2);

// What the row needs beside q, k and v.
void AddGates([[maybe_unused]] RequestBuilder& builder, [[maybe_unused]] const RecurrentSizes& s) {
  builder.Floats("log_decay", {s.batch, s.num_kv_heads, s.len},
                 LogDecays(s.batch * s.num_kv_heads * s.len, 8));
  builder.Floats("beta", {s.batch, s.num_kv_heads, s.len},
                 Betas(s.batch * s.num_kv_heads * s.len, 9));
  builder.Floats("skip", {s.num_heads}, Betas(s.num_heads, 3));
}

TEST_P(Mamba2, MatchesReference) {
  uint64_t seed = 1;
  for (const RecurrentSizes& s : ManySizes()) {
    for (const double chunk_len : {64.0, 1.0, 7.0, 33.0}) {
      RequestBuilder builder = RecurrentRequest("mamba2", s, seed++);
      AddGates(builder, s);
      builder.Param("chunk_len", chunk_len).Param("return_state", true);

      ExpectMatchesOracle(builder.request(), "length " + std::to_string(s.len) + ", chunks of " +
                                                 std::to_string(chunk_len));
    }
  }
}

TEST_P(Mamba2, StatesAndLengthsMatchReference) {
  const RecurrentSizes s = {2, 4, 2, 90, 12, 10};
  RequestBuilder builder = RecurrentRequest("mamba2", s, 77);
  AddGates(builder, s);

  const int64_t cols = s.head_dim_v;
  std::vector<float> state = Betas(s.batch * s.num_kv_heads * s.head_dim * cols, 5);
  builder.Floats("initial_state", {s.batch, s.num_kv_heads, s.head_dim, cols}, state)
      .Integers("key_lengths", {2}, {0, 70})
      .Param("return_state", true);
  ExpectMatchesOracle(builder.request(), "lengths 0 and 70");
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
