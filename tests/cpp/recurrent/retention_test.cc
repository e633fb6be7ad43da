// Retention: against the oracle over odd sizes, states and lengths, and its limits.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class Retention : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Retention);

// What the row is given beside q, k and v.
void AddInputsOfRow(RequestBuilder& builder, const RecurrentSizes& s) {
  builder.Floats("head_log_decay", {s.num_kv_heads}, LogDecays(s.num_kv_heads, 8));
}

TEST_P(Retention, MatchesReference) { ExpectRowMatchesOracle("retention", AddInputsOfRow); }

TEST_P(Retention, StatesAndLengthsMatchReference) {
  ExpectStatesAndLengthsMatchOracle("retention", AddInputsOfRow);
}

TEST_P(Retention, DefaultRatesMatchReference) {
  const RecurrentSizes s = {1, 4, 4, 130, 8, 8};
  ExpectMatchesOracle(RecurrentRequest("retention", s, 4).request(), "default rates");
}

TEST_P(Retention, ReducesToLinearAttentionWithoutForgetting) {
  const RecurrentSizes s = {1, 2, 2, 80, 8, 8};
  RequestBuilder retention = RecurrentRequest("retention", s, 4);
  retention.Floats("head_log_decay", {2}, {0, 0}).Param("scale", 1.0);
  RequestBuilder linear = RecurrentRequest("linear", s, 4);
  linear.Param("feature_map", "identity").Param("weight_sum", "free").Param("causal", true);
  ExpectResultsNear(RunByName(retention.request()).at("output"),
                    RunByName(linear.request()).at("output"), 1e-5, "rate 0");
}

TEST_P(Retention, HalvesOneValueAToken) {
  RequestBuilder builder("retention");
  builder.Floats("q", {1, 1, 3, 1}, {1, 1, 1})
      .Floats("k", {1, 1, 3, 1}, {1, 0, 0})
      .Floats("v", {1, 1, 3, 1}, {8, 0, 0})
      .Floats("head_log_decay", {1}, {-std::log(2.0f)});
  ExpectResultsNear(RunByName(builder.request()).at("output"), {8, 4, 2}, 1e-6, "8, 4, 2");
}

// Sums of rates that forget as little as a 4096th a token: what rounds alike in every chunk adds
// up.
TEST_P(Retention, RemembersThousandsOfTokens) {
  constexpr int64_t kHeads = 8, kLen = 6000, kDim = 16;
  const std::vector<float> quarters(kHeads * kLen * kDim, 0.25f);
  std::vector<float> rates;
  for (int64_t h = 0; h < kHeads; ++h) {
    rates.push_back(static_cast<float>(std::log1p(-std::exp2(-5.0 - static_cast<double>(h)))));
  }
  RequestBuilder builder("retention");
  builder.Floats("q", {1, kHeads, kLen, kDim}, quarters)
      .Floats("k", {1, kHeads, kLen, kDim}, quarters)
      .Floats("v", {1, kHeads, kLen, 1}, std::vector<float>(kHeads * kLen, 1.0f))
      .Floats("head_log_decay", {kHeads}, rates)
      .Param("scale", 1.0);
  std::vector<double> output = RunByName(builder.request()).at("output");
  std::vector<double> expected;
  for (const float rate : rates) {
    const size_t first = expected.size();
    double sum = 0;
    for (int64_t t = 0; t < kLen; ++t) expected.push_back(sum = sum * std::exp(double{rate}) + 1);
    for (size_t i = first; i < expected.size(); ++i) output[i] /= sum, expected[i] /= sum;
  }
  ExpectResultsNear(output, expected, 3e-6, "slow decays");
}

}  // namespace
}  // namespace heed::testing
