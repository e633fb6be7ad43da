// Gradients of the rules that go back token by token, level by level and through other calls.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "backward_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "recurrent_case.h"
#include "simd_targets.h"
#include "src/parallel/dry_run.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class RuleGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(RuleGradient);

std::vector<float> Normal(int64_t count, uint64_t seed, float factor = 1) {
  Random random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = factor * random.Normal();
  return values;
}

// A rule, what it is given beside q, k and v, and the extents of its state.
struct Rule {
  std::string id;
  AddInputs add;
  std::function<int64_t(const RecurrentSizes&)> rows;
  int64_t more_cols = 0;
};

void AddErasing(RequestBuilder& builder, const RecurrentSizes& s) {
  const std::vector<int64_t> shape = {s.batch, s.num_kv_heads, s.len, s.head_dim};
  const int64_t count = s.batch * s.num_kv_heads * s.len * s.head_dim;
  AddChannelLogDecay(builder, s);
  builder.Floats("erase_key", shape, Normal(count, 8)).Floats("erase_rate", shape, Betas(count, 9));
}

constexpr int64_t kLevels = 13;

void AddLevels(RequestBuilder& builder, const RecurrentSizes& s) {
  AddLogDecay(builder, s);
  AddBeta(builder, s);
  builder
      .Floats("level_weights", {s.batch, s.num_heads, s.len, kLevels},
              Normal(s.batch * s.num_heads * s.len * kLevels, 8))
      .Param("position_offset", 5.0);
}

void AddInnerModel(RequestBuilder& builder, const RecurrentSizes& s) {
  // Rates at which the model does not run away, and its gradients with it.
  std::vector<float> rates = Betas(s.batch * s.num_kv_heads * s.len, 6);
  for (float& rate : rates) rate *= std::min(0.02f, 0.1f / static_cast<float>(s.len));
  builder.Floats("beta", {s.batch, s.num_kv_heads, s.len}, rates)
      .Floats("inner_norm_weight", {s.num_kv_heads, s.head_dim},
              Betas(s.num_kv_heads * s.head_dim, 7))
      .Floats("inner_norm_bias", {s.num_kv_heads, s.head_dim},
              Normal(s.num_kv_heads * s.head_dim, 8))
      .Param("mini_batch", 4.0)
      .Param("position_offset", 2.0);
}

AddInputs RandomFeatures(bool causal) {
  return [causal](RequestBuilder& builder, const RecurrentSizes& s) {
    const int64_t features = s.head_dim + 3;
    builder.Floats("projection", {features, s.head_dim}, Normal(features * s.head_dim, 8))
        .Param("causal", causal);
  };
}

std::vector<Rule> Rules() {
  const auto dim = [](const RecurrentSizes& s) { return s.head_dim; };
  const auto features = [](const RecurrentSizes& s) { return s.head_dim + 3; };
  return {
      {"rwkv7", AddErasing, dim},
      {"log_linear", AddLevels, [](const RecurrentSizes& s) { return (kLevels - 1) * s.head_dim; }},
      {"ttt_linear", AddInnerModel, [](const RecurrentSizes& s) { return 2 * (s.head_dim + 1); }},
      {"performer", RandomFeatures(true), features, 2},
      {"performer", RandomFeatures(false), features, 2}};
}

// The rule that learns maps head_dim to as many.
RecurrentSizes SizesOf(const Rule& rule, RecurrentSizes s) {
  if (rule.id == "ttt_linear") s.head_dim_v = s.head_dim;
  return s;
}

RequestBuilder RequestOf(const Rule& rule, const RecurrentSizes& sizes, uint64_t seed) {
  const RecurrentSizes s = SizesOf(rule, sizes);
  RequestBuilder builder = RecurrentRequest(rule.id, s, seed);
  rule.add(builder, s);
  builder.Param("return_state", true);
  const int64_t rows = rule.rows(s), cols = s.head_dim_v + rule.more_cols;
  const int64_t count = s.batch * s.num_kv_heads * rows * cols;
  builder.Floats("initial_state", {s.batch, s.num_kv_heads, rows, cols}, Betas(count, 5));
  return builder;
}

TEST_P(RuleGradient, MatchesDifferencesOfReference) {
  for (const Rule& rule : Rules()) {
    for (const RecurrentSizes& s :
         {RecurrentSizes{1, 1, 1, 1, 2, 1}, RecurrentSizes{2, 4, 2, 7, 3, 5}}) {
      ExpectElementsMatch(RequestOf(rule, s, 20).request(), kRecurrentGradientMaxError, rule.id);
    }
  }
}

TEST_P(RuleGradient, MatchesAlongDirectionsForLongerTexts) {
  for (const Rule& rule : Rules()) {
    for (const RecurrentSizes& s :
         {RecurrentSizes{1, 3, 1, 65, 17, 9}, RecurrentSizes{2, 2, 2, 150, 12, 33}}) {
      ExpectDirectionsMatch(RequestOf(rule, s, 30).request(), kRecurrentGradientMaxError,
                            rule.id + ", length " + std::to_string(s.len));
    }
  }
}

TEST_P(RuleGradient, MatchesBeyondLengths) {
  for (const Rule& rule : Rules()) {
    RequestBuilder builder = RequestOf(rule, {2, 2, 1, 6, 3, 4}, 40);
    builder.Integers("key_lengths", {2}, {0, 4});
    ExpectElementsMatch(builder.request(), kRecurrentGradientMaxError, rule.id);
  }
}

TEST_P(RuleGradient, MatchesWhereStatesAreRunThroughAgain) {
  for (const Rule& rule : Rules()) {
    if (rule.id == "log_linear") continue;  // its reference takes all pairs
    ExpectDirectionsMatch(RequestOf(rule, {1, 1, 1, 2100, 6, 2}, 60).request(),
                          kRecurrentGradientMaxError, rule.id);
  }
}

TEST_P(RuleGradient, SameBitsForAnyNumberOfThreads) {
  for (const Rule& rule : Rules()) {
    ExpectSameGradientsForAnyThreads(RequestOf(rule, {2, 6, 3, 70, 8, 8}, 70).request(), rule.id);
  }
}

}  // namespace
}  // namespace heed::testing
