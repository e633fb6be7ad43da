// Gradients of the rules that go back token by token, level by level and through other calls.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "backward_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/gradient.h"
#include "normal_input.h"
#include "recurrent_case.h"
#include "simd_targets.h"
#include "src/parallel/dry_run.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class RuleGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(RuleGradient);

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
  builder.Floats("erase_key", shape, NormalFloats(count, 8))
      .Floats("erase_rate", shape, Betas(count, 9));
}

constexpr int64_t kLevels = 13;

void AddLevels(RequestBuilder& builder, const RecurrentSizes& s) {
  AddLogDecay(builder, s);
  AddBeta(builder, s);
  builder
      .Floats("level_weights", {s.batch, s.num_heads, s.len, kLevels},
              NormalFloats(s.batch * s.num_heads * s.len * kLevels, 8))
      .Param("position_offset", 5.0);
}

void AddInnerModel(RequestBuilder& builder, const RecurrentSizes& s) {
  // Rates at which the model does not run away, and its gradients with it.
  std::vector<float> rates = Betas(s.batch * s.num_kv_heads * s.len, 6);
  for (float& rate : rates) rate *= std::min(0.01f, 0.1f / static_cast<float>(s.len));
  builder.Floats("beta", {s.batch, s.num_kv_heads, s.len}, rates)
      .Floats("inner_norm_weight", {s.num_kv_heads, s.head_dim},
              Betas(s.num_kv_heads * s.head_dim, 7))
      .Floats("inner_norm_bias", {s.num_kv_heads, s.head_dim},
              NormalFloats(s.num_kv_heads * s.head_dim, 8))
      .Param("mini_batch", 4.0)
      .Param("position_offset", 2.0);
}

void AddModelInPart(RequestBuilder& builder, const RecurrentSizes& s) {
  AddInnerModel(builder, s);
  builder.Floats("position_rate", {4}, {1, 0.5f, -0.25f, 1.5f});
}

AddInputs RandomFeatures(bool causal) {
  return [causal](RequestBuilder& builder, const RecurrentSizes& s) {
    const int64_t features = s.head_dim + 3;
    builder.Floats("projection", {features, s.head_dim}, NormalFloats(features * s.head_dim, 8))
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
      {"ttt_linear", AddModelInPart, [](const RecurrentSizes& s) { return 2 * (s.head_dim + 1); }},
      {"performer", RandomFeatures(true), features, 2},
      {"performer", RandomFeatures(false), features, 2}};
}

// The rule that learns maps head_dim to as many.
RecurrentSizes SizesOf(const Rule& rule, RecurrentSizes s) {
  if (rule.id == "ttt_linear") s.head_dim_v = s.head_dim = std::max(s.head_dim, s.head_dim_v);
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

// Blocks of 128 tokens that lie in the text whole, and two that do not.
TEST_P(RuleGradient, MatchesAcrossBlocksOfLevels) {
  const RecurrentSizes s = {1, 2, 1, 400, 6, 3};
  RequestBuilder builder = RecurrentRequest("log_linear", s, 50);
  AddLevels(builder, s);
  ExpectDirectionsMatch(builder.request(), kRecurrentGradientMaxError, "log_linear");
}

// As many tokens as the levels hold.
TEST_P(RuleGradient, MatchesWhereLevelsAreFull) {
  for (const int64_t levels : {1, 4, 7, 8}) {
    const RecurrentSizes s = {1, 2, 1, int64_t{1} << (levels - 1), 3, 2};
    RequestBuilder builder = RecurrentRequest("log_linear", s, 50);
    AddLogDecay(builder, s);
    builder.Floats("level_weights", {1, 2, s.len, levels}, NormalFloats(2 * s.len * levels, 8))
        .Param("return_state", true);
    ExpectDirectionsMatch(builder.request(), kRecurrentGradientMaxError, std::to_string(levels));
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

TEST_P(RuleGradient, SameBitsWhereRowsLieApart) {
  for (const Rule& rule : Rules()) {
    ExpectSameGradientsWithGaps(RequestOf(rule, {2, 4, 2, 7, 3, 5}, 80).request(), rule.id);
  }
}

// The tokens at which a gradient [1, 1, len, dim] is not finite.
std::vector<int64_t> PoisonedTokens(const std::vector<double>& gradient, int64_t len) {
  std::vector<int64_t> tokens;
  const size_t dim = gradient.size() / static_cast<size_t>(len);
  for (size_t n = 0; n < gradient.size(); ++n) {
    const int64_t t = static_cast<int64_t>(n / dim);
    if (!std::isfinite(gradient[n]) && (tokens.empty() || tokens.back() != t)) tokens.push_back(t);
  }
  return tokens;
}

// Values hold NaN at token 5 of 8, and at token 7, beyond the length.
TEST_P(RuleGradient, NanReachesWhatSeesItAndNoOther) {
  using ::testing::ElementsAre;
  using ::testing::IsEmpty;
  const RecurrentSizes s = {1, 1, 1, 8, 3, 3};
  for (const Rule& rule : Rules()) {
    if (rule.id == "ttt_linear") continue;  // steps hold all of their token
    RequestBuilder builder(rule.id);
    std::vector<float> values = NormalFloats(24, 3);
    values[5 * 3 + 1] = values[7 * 3] = kNan;
    builder.Floats("q", {1, 1, 8, 3}, NormalFloats(24, 1))
        .Floats("k", {1, 1, 8, 3}, NormalFloats(24, 2));
    builder.Floats("v", {1, 1, 8, 3}, values).Integers("key_lengths", {1}, {7});
    rule.add(builder, s);
    Backward backward(builder.request());
    const Values gradients = backward.gradients.ByName();
    EXPECT_THAT(PoisonedTokens(gradients.at("v"), 8), IsEmpty()) << rule.id;
    const auto keys = PoisonedTokens(gradients.at("k"), 8);
    if (rule.id == "performer") {
      // A value weighs against all others of the rows that it is in.
      EXPECT_FALSE(keys.empty());
    } else {
      EXPECT_THAT(keys, ElementsAre(5)) << rule.id;
    }
  }
}

TEST_P(RuleGradient, DecaysOfZeroLetNothingPass) {
  for (const char* id : {"rwkv7", "log_linear"}) {
    const bool channels = std::string(id) == "rwkv7";
    std::vector<float> gates = LogDecays(channels ? 24 : 8, 4);
    const size_t width = gates.size() / 8;
    std::fill_n(gates.begin() + static_cast<int64_t>(5 * width), width, -kInf);
    RequestBuilder builder(id);
    builder.Floats("q", {1, 1, 8, 3}, NormalFloats(24, 1))
        .Floats("k", {1, 1, 8, 3}, NormalFloats(24, 2));
    std::vector<float> values = NormalFloats(16, 3);
    values[3] = kNan;  // of token 1
    builder.Floats("v", {1, 1, 8, 2}, values);
    if (channels) {
      builder.Floats("channel_log_decay", {1, 1, 8, 3}, gates)
          .Floats("erase_key", {1, 1, 8, 3}, std::vector<float>(24, 0.0f))
          .Floats("erase_rate", {1, 1, 8, 3}, Betas(24, 5));
    } else {
      builder.Floats("log_decay", {1, 1, 8}, gates)
          .Floats("level_weights", {1, 1, 8, 5}, NormalFloats(40, 6));
    }
    Backward backward(builder.request());
    const Values gradients = backward.gradients.ByName();
    // A token erases what the state was before its decay.
    for (const int64_t t : PoisonedTokens(gradients.at("q"), 8)) {
      EXPECT_TRUE(t < 5 || channels) << id;
    }
    const std::vector<double>& d_gates = gradients.at(channels ? "channel_log_decay" : "log_decay");
    for (size_t c = 0; c < width; ++c) EXPECT_EQ(d_gates[5 * width + c], 0.0) << id;
  }
}

TEST(RuleGradientBoundary, ResultsWithoutGradientAreRefused) {
  RequestBuilder builder = RecurrentRequest("performer", {1, 1, 1, 3, 2, 2}, 1);
  builder.Param("return_projection", true);
  EXPECT_EQ(BackwardRefusal(builder.request()),
            "unsupported: return_projection gives a result without a gradient");
}

// What one thread allocates for one head of so many tokens.
int64_t ScratchBytes(int64_t len, bool levels) {
  static float nothing = 0;
  const Extents shape = {1, 1, len, 16}, strides = {0, 0, 0, 1};
  const TensorView<const float> tokens = {&nothing, shape, strides};
  RecurrentOptions options;
  if (levels) {
    options.level_weights = {&nothing, {1, 1, len, 40}, {0, 0, 0, 1}};
  } else {
    options.erase_key = options.erase_rate = tokens;
  }
  DryRun dry;
  IdlePool pool(1);
  RecurrentBackward(tokens, tokens, tokens, tokens, options, {}, &pool);
  return dry.most_bytes();
}

TEST(RuleGradientBoundary, MemoryIsOneStateForEvery2048Tokens) {
  const int64_t state = 16 * 16 * static_cast<int64_t>(sizeof(float));
  EXPECT_EQ(ScratchBytes(int64_t{4} << 11, false) - ScratchBytes(int64_t{3} << 11, false), state);
  // Levels keep rows of queries, keys and values, once more what they get, and some numbers.
  const int64_t rows = 5 * 16 * static_cast<int64_t>(sizeof(float));
  const int64_t numbers = 2 * static_cast<int64_t>(sizeof(float)) + 4 * 8;
  EXPECT_EQ(ScratchBytes(2000, true) - ScratchBytes(1000, true), 1000 * (rows + numbers));
}

}  // namespace
}  // namespace heed::testing
