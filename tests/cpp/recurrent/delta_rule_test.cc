// The delta rule: against the oracle over odd sizes, states and lengths, and its limits.
#include <gtest/gtest.h>

#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class DeltaRule : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(DeltaRule);

TEST_P(DeltaRule, MatchesReference) { ExpectRowMatchesOracle("delta_rule", AddBeta); }

TEST_P(DeltaRule, StatesAndLengthsMatchReference) {
  ExpectStatesAndLengthsMatchOracle("delta_rule", AddBeta);
}

TEST_P(DeltaRule, ReplacesWhatAKeyStands) {
  // The same key twice: the second value replaces the first one, where addition would give 7.
  RequestBuilder builder("delta_rule");
  builder.Floats("q", {1, 1, 3, 2}, {3, 0, 3, 0, 0, 2})
      .Floats("k", {1, 1, 3, 2}, {1, 0, 2, 0, 0, 5})
      .Floats("v", {1, 1, 3, 1}, {3, 4, 9})
      .Param("scale", 1.0);
  ExpectResultsNear(RunByName(builder.request()).at("output"), {3, 4, 9}, 1e-6, "3, 4, 9");
}

TEST_P(DeltaRule, WithOrthogonalKeysIsLinearAttention) {
  const int64_t n = 8;
  std::vector<float> keys(static_cast<size_t>(n * n), 0.0f);
  for (int64_t i = 0; i < n; ++i) keys[static_cast<size_t>(i * n + i)] = 1;
  const auto request = [&](const char* id) {
    const std::vector<float> q = Betas(n * n, 1), v = Betas(n * 3, 2);
    RequestBuilder builder(id);
    builder.Floats("q", {1, 1, n, n}, q)
        .Floats("k", {1, 1, n, n}, keys)
        .Floats("v", {1, 1, n, 3}, v);
    return builder;
  };
  RequestBuilder delta = request("delta_rule");
  delta.Param("qk_norm", "none").Param("scale", 1.0);
  RequestBuilder linear = request("linear");
  linear.Param("feature_map", "identity").Param("weight_sum", "free").Param("causal", true);
  ExpectResultsNear(RunByName(delta.request()).at("output"),
                    RunByName(linear.request()).at("output"), 1e-6, "nothing to erase");
}

}  // namespace
}  // namespace heed::testing
