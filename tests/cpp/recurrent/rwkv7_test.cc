// RWKV-7: against the oracle over odd sizes, states and lengths, and its limits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class Rwkv7 : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Rwkv7);

void AddErasing(RequestBuilder& builder, const RecurrentSizes& s, uint64_t seed) {
  const int64_t count = s.batch * s.num_kv_heads * s.len * s.head_dim;
  std::vector<float> keys = Betas(count, seed);
  for (float& x : keys) x -= 0.5f;
  const std::vector<int64_t> shape = {s.batch, s.num_kv_heads, s.len, s.head_dim};
  builder.Floats("erase_key", shape, keys).Floats("erase_rate", shape, Betas(count, seed + 1));
}

// What the row is given beside q, k and v.
void AddInputsOfRow(RequestBuilder& builder, const RecurrentSizes& s) {
  AddChannelLogDecay(builder, s);
  AddErasing(builder, s, 31);
}

TEST_P(Rwkv7, MatchesReference) { ExpectRowMatchesOracle("rwkv7", AddInputsOfRow); }

TEST_P(Rwkv7, StatesAndLengthsMatchReference) {
  ExpectStatesAndLengthsMatchOracle("rwkv7", AddInputsOfRow);
}

TEST_P(Rwkv7, StrongGatesMatchReference) {
  const RecurrentSizes s = {1, 2, 1, 130, 8, 8};
  std::vector<float> gates = LogDecays(s.len * s.head_dim, 8);
  for (size_t n = 0; n < gates.size(); ++n) {
    gates[n] *= n % 7 == 0 ? 1e4f : 10;
    if (n % 31 == 0) gates[n] = -std::numeric_limits<float>::infinity();
  }
  RequestBuilder builder = RecurrentRequest("rwkv7", s, 4);
  builder.Floats("channel_log_decay", {1, 1, s.len, s.head_dim}, gates);
  AddErasing(builder, s, 3);
  ExpectMatchesOracle(builder.request(), "strong gates");
}

TEST_P(Rwkv7, GivesTheNumbersOfItsDefinition) {
  // S = (1/2 - 1/4) S + k v: the erased quarter is of the state before it is halved.
  RequestBuilder builder("rwkv7");
  const float half = -std::log(2.0f);
  builder.Floats("q", {1, 1, 3, 1}, {1, 1, 1})
      .Floats("k", {1, 1, 3, 1}, {1, 1, 1})
      .Floats("v", {1, 1, 3, 1}, {8, 0, 4})
      .Floats("channel_log_decay", {1, 1, 3, 1}, {half, half, half})
      .Floats("erase_key", {1, 1, 3, 1}, {5, -3, 2})
      .Floats("erase_rate", {1, 1, 3, 1}, {0.25f, 0.25f, 0.25f});
  ExpectResultsNear(RunByName(builder.request()).at("output"), {8, 2, 4.5}, 1e-6, "8, 2, 4.5");
}

TEST_P(Rwkv7, ReducesToGatedLinearAttentionWithoutErasing) {
  const RecurrentSizes s = {1, 2, 1, 80, 8, 8};
  RequestBuilder rwkv = RecurrentRequest("rwkv7", s, 4);
  RequestBuilder gated = RecurrentRequest("gated_linear", s, 4);
  AddChannelLogDecay(rwkv, s);
  AddChannelLogDecay(gated, s);
  gated.Param("scale", 1.0);
  rwkv.Floats("erase_key", {1, 1, 80, 8}, std::vector<float>(640, 1))
      .Floats("erase_rate", {1, 1, 80, 8}, std::vector<float>(640));
  ExpectResultsNear(RunByName(rwkv.request()).at("output"), RunByName(gated.request()).at("output"),
                    1e-5, "rate 0");
}

TEST_P(Rwkv7, ReducesToTheDeltaRuleWhereKeysEraseThemselves) {
  const int64_t len = 80, dim = 8;
  std::vector<float> keys = Betas(len * dim, 2);
  for (int64_t t = 0; t < len; ++t) {
    double squares = 0;
    for (int64_t c = 0; c < dim; ++c) squares += std::pow(keys[t * dim + c], 2);
    for (int64_t c = 0; c < dim; ++c) keys[t * dim + c] /= static_cast<float>(std::sqrt(squares));
  }
  const std::vector<float> q = LogDecays(len * dim, 1), v = Betas(len * dim, 3);
  RequestBuilder rwkv("rwkv7"), delta("delta_rule");
  for (RequestBuilder* builder : {&rwkv, &delta}) {
    builder->Floats("q", {1, 1, len, dim}, q)
        .Floats("k", {1, 1, len, dim}, keys)
        .Floats("v", {1, 1, len, dim}, v)
        .Param("scale", 1.0);
  }
  delta.Param("qk_norm", "none");
  rwkv.Floats("channel_log_decay", {1, 1, len, dim}, std::vector<float>(len * dim))
      .Floats("erase_key", {1, 1, len, dim}, keys)
      .Floats("erase_rate", {1, 1, len, dim}, std::vector<float>(len * dim, 1));
  ExpectResultsNear(RunByName(rwkv.request()).at("output"), RunByName(delta.request()).at("output"),
                    2e-5, "no decay, rate 1");
}

}  // namespace
}  // namespace heed::testing
