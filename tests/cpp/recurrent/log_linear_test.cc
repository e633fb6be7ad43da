// Log-linear attention: against all pairs one by one, states and lengths, and its limits.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "heed/error.h"
#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class LogLinear : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(LogLinear);

void AddLevels(RequestBuilder& builder, const RecurrentSizes& s, int64_t levels) {
  builder.Floats("level_weights", {s.batch, s.num_heads, s.len, levels},
                 Betas(s.batch * s.num_heads * s.len * levels, 21));
}

// What the row is given beside q, k and v.
void AddInputsOfRow(RequestBuilder& builder, const RecurrentSizes& s) {
  AddLogDecay(builder, s);
  AddBeta(builder, s);
  AddLevels(builder, s, std::bit_width(static_cast<uint64_t>(s.len)) + 1);
}

TEST_P(LogLinear, MatchesReference) { ExpectRowMatchesOracle("log_linear", AddInputsOfRow); }

TEST_P(LogLinear, StatesOffsetsAndLengthsMatchReference) {
  const RecurrentSizes s = {2, 4, 2, 90, 12, 10};
  for (const int64_t before : {0, 1, 38, 64, 127}) {
    RequestBuilder builder = RecurrentRequest("log_linear", s, 77);
    AddLogDecay(builder, s);
    AddLevels(builder, s, 10);
    builder
        .Floats("initial_state", {2, 2, 9 * s.head_dim, s.head_dim_v},
                Betas(4 * 9 * s.head_dim * s.head_dim_v, 5))
        .Integers("key_lengths", {2}, {70, 90})
        .Param("position_offset", std::vector<double>{static_cast<double>(before), 5})
        .Param("return_state", true);
    ExpectMatchesOracle(builder.request(), std::to_string(before) + " tokens before");
  }
}

TEST_P(LogLinear, StrongGatesMatchReference) {
  const RecurrentSizes s = {1, 2, 1, 130, 8, 8};
  std::vector<float> gates = LogDecays(s.len, 8);
  for (size_t n = 0; n < gates.size(); ++n) gates[n] *= n % 7 == 0 ? 1e4f : 10;
  gates[77] = -std::numeric_limits<float>::infinity();
  RequestBuilder builder = RecurrentRequest("log_linear", s, 4);
  builder.Floats("log_decay", {1, 1, s.len}, gates).Param("return_state", true);
  AddLevels(builder, s, 9);
  ExpectMatchesOracle(builder.request(), "strong gates");
}

// Where 2^(levels - 1) tokens end, their sum has no level: the state is zeros.
TEST_P(LogLinear, TakesAsManyTokensAsItsLevelsHold) {
  for (const int64_t levels : {1, 2, 4, 7, 8}) {
    for (const int64_t before : {0, 1, 3, 40}) {
      const RecurrentSizes s = {1, 2, 1, (int64_t{1} << (levels - 1)) - before, 5, 3};
      if (s.len < 1) continue;
      RequestBuilder builder = RecurrentRequest("log_linear", s, 31);
      AddLogDecay(builder, s);
      AddLevels(builder, s, levels);
      builder.Param("position_offset", static_cast<double>(before)).Param("return_state", true);
      if (before > 0) {
        const int64_t rows = (levels - 1) * s.head_dim;
        builder.Floats("initial_state", {1, 1, rows, s.head_dim_v}, Betas(rows * s.head_dim_v, 5));
      }
      const std::string what = std::to_string(levels) + " levels, from " + std::to_string(before);
      ExpectMatchesOracle(builder.request(), what);
      const Values results = RunByName(builder.request());
      for (const double x : results.at("state")) EXPECT_EQ(x, 0) << what;
    }
  }
}

TEST_P(LogLinear, NamesTheLevelsThatALengthNeeds) {
  const RecurrentSizes s = {1, 2, 1, 9, 5, 3};
  RequestBuilder builder = RecurrentRequest("log_linear", s, 31);
  AddLevels(builder, s, 4);
  try {
    RunByName(builder.request());
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRange);
    EXPECT_STREQ(error.what(),
                 "positions reach from 0 to 8; level_weights has 4 levels, for 8 tokens: expected "
                 "5 levels");
  }
  EXPECT_THROW(RunOracle(builder.request()), Error);
}

TEST_P(LogLinear, WeighsTokensByTheirLevel) {
  // Powers of ten count the tokens of each level: of token 6, itself, 4 and 5, and the first four.
  const int64_t len = 7, levels = 4;
  std::vector<float> weights;
  for (int64_t t = 0; t < len; ++t) weights.insert(weights.end(), {1, 10, 100, 1000});
  const std::vector<float> ones(len, 1);
  RequestBuilder builder("log_linear");
  builder.Floats("q", {1, 1, len, 1}, ones)
      .Floats("k", {1, 1, len, 1}, ones)
      .Floats("v", {1, 1, len, 1}, ones)
      .Floats("level_weights", {1, 1, len, levels}, weights);
  EXPECT_EQ(RunByName(builder.request()).at("output"),
            (std::vector<double>{1, 11, 201, 211, 4001, 4011, 4201}));
}

TEST_P(LogLinear, ReducesToStateSpaceDualityWithEqualWeights) {
  const RecurrentSizes s = {1, 2, 1, 150, 8, 8};
  RequestBuilder levels = RecurrentRequest("log_linear", s, 4);
  RequestBuilder one = RecurrentRequest("mamba2", s, 4);
  for (RequestBuilder* builder : {&levels, &one}) {
    AddLogDecay(*builder, s);
    AddBeta(*builder, s);
  }
  levels.Floats("level_weights", {1, 2, 150, 9}, std::vector<float>(2 * 150 * 9, 1));
  ExpectResultsNear(RunByName(levels.request()).at("output"), RunByName(one.request()).at("output"),
                    2e-5, "all weights 1");
}

}  // namespace
}  // namespace heed::testing
