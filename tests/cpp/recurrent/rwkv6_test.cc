// RWKV-6: against the oracle over odd sizes, states and lengths, and its limits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class Rwkv6 : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Rwkv6);

// What the row is given beside q, k and v.
void AddInputsOfRow(RequestBuilder& builder, const RecurrentSizes& s) {
  AddChannelLogDecay(builder, s);
  builder.Floats("bonus", {s.num_heads, s.head_dim}, Betas(s.num_heads * s.head_dim, 3));
}

TEST_P(Rwkv6, MatchesReference) { ExpectRowMatchesOracle("rwkv6", AddInputsOfRow); }

TEST_P(Rwkv6, StatesAndLengthsMatchReference) {
  ExpectStatesAndLengthsMatchOracle("rwkv6", AddInputsOfRow);
}

TEST_P(Rwkv6, StrongGatesMatchReference) {
  const RecurrentSizes s = {1, 2, 1, 130, 8, 8};
  std::vector<float> gates = LogDecays(s.len * s.head_dim, 8);
  for (size_t n = 0; n < gates.size(); ++n) {
    gates[n] *= n % 7 == 0 ? 1e4f : 10;
    if (n % 31 == 0) gates[n] = -std::numeric_limits<float>::infinity();
  }
  RequestBuilder builder = RecurrentRequest("rwkv6", s, 4);
  builder.Floats("channel_log_decay", {1, 1, s.len, s.head_dim}, gates)
      .Floats("bonus", {2, s.head_dim}, Betas(2 * s.head_dim, 3));
  ExpectMatchesOracle(builder.request(), "strong gates");
}

TEST_P(Rwkv6, ReadsBeforeItWritesAndItsOwnValueByTheBonus) {
  RequestBuilder builder("rwkv6");
  const float half = -std::log(2.0f);
  builder.Floats("q", {1, 1, 3, 1}, {1, 1, 1})
      .Floats("k", {1, 1, 3, 1}, {1, 1, 1})
      .Floats("v", {1, 1, 3, 1}, {8, 4, 2})
      .Floats("channel_log_decay", {1, 1, 3, 1}, {half, half, half})
      .Floats("bonus", {1, 1}, {3})
      .Param("return_state", true);
  const Values results = RunByName(builder.request());
  ExpectResultsNear(results.at("output"), {24, 8 + 12, 8 + 6}, 1e-6, "24, 20, 14");
  ExpectResultsNear(results.at("state"), {6}, 1e-6, "8 / 2 + 2");
}

TEST_P(Rwkv6, ReducesToGatedLinearAttentionOneTokenLater) {
  const std::vector<float> gates = LogDecays(80 * 8, 6), q = LogDecays(81 * 8, 1);
  const std::vector<float> k = LogDecays(80 * 8, 2), v = Betas(80 * 8, 3);
  RequestBuilder rwkv("rwkv6"), gated("gated_linear");
  for (RequestBuilder* builder : {&rwkv, &gated}) {
    builder->Floats("k", {1, 1, 80, 8}, k)
        .Floats("v", {1, 1, 80, 8}, v)
        .Floats("channel_log_decay", {1, 1, 80, 8}, gates)
        .Param("scale", 1.0);
  }
  rwkv.Floats("q", {1, 1, 80, 8}, {q.begin(), q.end() - 8})
      .Floats("bonus", {1, 8}, std::vector<float>(8));
  gated.Floats("q", {1, 1, 80, 8}, {q.begin() + 8, q.end()});
  std::vector<double> later = RunByName(rwkv.request()).at("output");
  std::vector<double> now = RunByName(gated.request()).at("output");
  EXPECT_EQ(std::vector<double>(later.begin(), later.begin() + 8), std::vector<double>(8));
  later.erase(later.begin(), later.begin() + 8);
  now.resize(later.size());
  ExpectResultsNear(later, now, 1e-5, "no bonus");
}

}  // namespace
}  // namespace heed::testing
