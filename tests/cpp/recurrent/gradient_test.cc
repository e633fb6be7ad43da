// RecurrentBackward() against central differences of the float64 oracle, row by row.
#include "heed/gradient.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "backward_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class RecurrentGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(RecurrentGradient);

// A row with a gradient, and what it is given beside q, k and v.
struct Row {
  std::string id;
  AddInputs add = [](RequestBuilder&, const RecurrentSizes&) {};
  int64_t more_cols = 0;                                                   // of the state
  std::function<int64_t(int64_t)> features = [](int64_t d) { return d; };  // its rows
  bool has_kinks = false;
};

void AddNothing(RequestBuilder&, const RecurrentSizes&) {}

AddInputs Linear(const std::string& map, bool causal, const std::string& sum) {
  return [=](RequestBuilder& builder, const RecurrentSizes&) {
    builder.Param("feature_map", map).Param("causal", causal).Param("weight_sum", sum);
  };
}

void AddHeadLogDecay(RequestBuilder& builder, const RecurrentSizes& s) {
  builder.Floats("head_log_decay", {s.num_kv_heads}, LogDecays(s.num_kv_heads, 3));
}

void AddMamba2(RequestBuilder& builder, const RecurrentSizes& s) {
  AddLogDecay(builder, s);
  AddBeta(builder, s);
  builder.Floats("skip", {s.num_heads}, Betas(s.num_heads, 4));
}

void AddBonus(RequestBuilder& builder, const RecurrentSizes& s) {
  AddChannelLogDecay(builder, s);
  builder.Floats("bonus", {s.num_heads, s.head_dim}, Betas(s.num_heads * s.head_dim, 4));
}

void AddChannelsAndBeta(RequestBuilder& builder, const RecurrentSizes& s) {
  AddChannelLogDecay(builder, s);
  AddBeta(builder, s);
}

std::vector<Row> Rows() {
  const auto causal = [](RequestBuilder& builder, const RecurrentSizes&) {
    builder.Param("causal", true);
  };
  const auto taylor = [](int64_t d) { return 1 + d + d * (d + 1) / 2; };
  const auto same = [](int64_t d) { return d; };
  const auto twice = [](int64_t d) { return 2 * d; };
  return {{"linear", Linear("elu_plus_one", true, "one"), 1},
          {"linear", Linear("softmax", true, "one"), 1},
          {"linear", Linear("elu_plus_one", false, "one"), 1},
          {"linear", Linear("identity", true, "free")},
          {"linear", Linear("relu", false, "free"), 0, same, true},
          {"retention", AddNothing},
          {"retention", AddHeadLogDecay},
          {"lightning", AddHeadLogDecay},
          {"gated_linear", AddChannelLogDecay},
          {"hgrn2", AddChannelLogDecay},
          {"mamba2", AddMamba2},
          {"rwkv6", AddBonus},
          {"delta_rule", AddBeta},
          {"gated_delta_rule",
           [](RequestBuilder& builder, const RecurrentSizes& s) {
             AddLogDecay(builder, s);
             AddBeta(builder, s);
           }},
          {"kimi_delta", AddChannelsAndBeta},
          {"based", causal, 1, taylor},
          {"cosformer", causal, 1, twice, true}};
}

RequestBuilder RequestOf(const Row& row, const RecurrentSizes& s, uint64_t seed) {
  RequestBuilder builder = RecurrentRequest(row.id, s, seed);
  row.add(builder, s);
  builder.Param("return_state", true);
  const int64_t rows = row.features(s.head_dim), cols = s.head_dim_v + row.more_cols;
  // The first feature, which may be a constant 1, counts most: denominators of features of both
  // signs stay away from 0.
  std::vector<float> state = Betas(s.batch * s.num_kv_heads * rows * cols, 5);
  for (size_t n = 0; n < state.size(); ++n) {
    if (static_cast<int64_t>(n) / cols % rows != 0) state[n] *= 0.01f;
  }
  builder.Floats("initial_state", {s.batch, s.num_kv_heads, rows, cols}, state);
  return builder;
}

TEST_P(RecurrentGradient, MatchesDifferencesOfReference) {
  for (const Row& row : Rows()) {
    for (const RecurrentSizes& s :
         {RecurrentSizes{1, 1, 1, 1, 1, 1}, RecurrentSizes{2, 4, 2, 7, 3, 5}}) {
      ExpectElementsMatch(RequestOf(row, s, 20).request(), kRecurrentGradientMaxError, row.id);
    }
  }
}

TEST_P(RecurrentGradient, MatchesAlongDirectionsAroundChunksAndBlocks) {
  for (const Row& row : Rows()) {
    if (row.has_kinks) continue;  // among thousands of elements a step crosses one
    for (const RecurrentSizes& s :
         {RecurrentSizes{1, 3, 1, 65, 17, 9}, RecurrentSizes{2, 2, 2, 150, 12, 33}}) {
      ExpectDirectionsMatch(RequestOf(row, s, 30).request(), kRecurrentGradientMaxError,
                            row.id + ", length " + std::to_string(s.len));
    }
  }
}

TEST_P(RecurrentGradient, MatchesBeyondLengths) {
  for (const Row& row : Rows()) {
    const RecurrentSizes s = {2, 2, 1, 6, 3, 4};
    RequestBuilder builder = RequestOf(row, s, 40);
    builder.Integers("key_lengths", {2}, {0, 4});
    ExpectElementsMatch(builder.request(), kRecurrentGradientMaxError, row.id);
  }
}

TEST_P(RecurrentGradient, StrongGatesNeitherOverflowNorLeak) {
  for (const char* id : {"gated_linear", "kimi_delta", "gated_delta_rule"}) {
    const RecurrentSizes s = {1, 1, 1, 40, 4, 5};
    const bool channels = std::string(id) != "gated_delta_rule";
    std::vector<float> gates = LogDecays(s.len * (channels ? s.head_dim : 1), 8);
    for (size_t n = 0; n < gates.size(); ++n) gates[n] *= n % 3 == 0 ? 100.0f : 1.0f;
    gates[5] = -kInf;
    const Row row{id, [&](RequestBuilder& builder, const RecurrentSizes&) {
                    if (channels) {
                      builder.Floats("channel_log_decay", {1, 1, s.len, s.head_dim}, gates);
                    } else {
                      builder.Floats("log_decay", {1, 1, s.len}, gates);
                    }
                    builder.Floats("beta", {1, 1, s.len}, Betas(s.len, 9));
                  }};
    const Row without_beta{id, [&](RequestBuilder& builder, const RecurrentSizes&) {
                             builder.Floats("channel_log_decay", {1, 1, s.len, s.head_dim}, gates);
                           }};
    ExpectElementsMatch(
        RequestOf(std::string(id) == "gated_linear" ? without_beta : row, s, 50).request(),
        kRecurrentGradientMaxError, id);
  }
}

// Long enough for two segments of chunks.
TEST_P(RecurrentGradient, MatchesWhereStatesAreRunThroughAgain) {
  for (const Row& row : {Row{"retention", AddHeadLogDecay}, Row{"delta_rule", AddBeta}}) {
    ExpectDirectionsMatch(RequestOf(row, {1, 1, 1, 2200, 4, 3}, 60).request(),
                          kRecurrentGradientMaxError, row.id);
  }
}

TEST_P(RecurrentGradient, SameBitsForAnyNumberOfThreads) {
  for (const Row& row : Rows()) {
    ExpectSameGradientsForAnyThreads(RequestOf(row, {2, 6, 3, 100, 8, 8}, 70).request(), row.id);
  }
}

// The tokens at which a gradient [1, 1, len, dim] is not finite.
std::vector<int64_t> PoisonedTokens(const std::vector<float>& gradient, int64_t len) {
  std::vector<int64_t> tokens;
  const size_t dim = gradient.size() / static_cast<size_t>(len);
  for (int64_t t = 0; t < len; ++t) {
    bool finite = true;
    for (size_t c = 0; c < dim; ++c) {
      finite = finite && std::isfinite(gradient[static_cast<size_t>(t) * dim + c]);
    }
    if (!finite) tokens.push_back(t);
  }
  return tokens;
}

// One number of token 5 of 8 is NaN.
Tensors GradientsWith(const std::string& poisoned) {
  const RecurrentSizes s = {1, 1, 1, 8, 3, 2};
  RequestBuilder builder("gated_linear");
  for (const auto& [name, dim] : {std::pair("q", 3), std::pair("k", 3), std::pair("v", 2)}) {
    std::vector<float> values = Betas(s.len * dim, static_cast<uint64_t>(dim) + 1);
    if (poisoned == name) values[static_cast<size_t>(5 * dim + 1)] = kNan;
    builder.Floats(name, {1, 1, s.len, dim}, values);
  }
  AddChannelLogDecay(builder, s);
  Backward backward(builder.request());
  if (poisoned == "output") {
    backward.d_results.values(0)[5 * 2 + 1] = kNan;
    backward.Run(builder.request());
  }
  return std::move(backward.gradients);
}

TEST_P(RecurrentGradient, NanReachesWhatSeesItAndNoOther) {
  using ::testing::ElementsAre;
  using ::testing::IsEmpty;
  const int64_t len = 8;
  // q, k, v, channel_log_decay.
  Tensors of_query = GradientsWith("q");
  EXPECT_THAT(PoisonedTokens(of_query.values(0), len), IsEmpty());
  EXPECT_THAT(PoisonedTokens(of_query.values(1), len), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(PoisonedTokens(of_query.values(2), len), ElementsAre(0, 1, 2, 3, 4, 5));
  Tensors of_value = GradientsWith("v");
  EXPECT_THAT(PoisonedTokens(of_value.values(0), len), ElementsAre(5, 6, 7));
  EXPECT_THAT(PoisonedTokens(of_value.values(1), len), ElementsAre(5));
  EXPECT_THAT(PoisonedTokens(of_value.values(2), len), IsEmpty());
  EXPECT_THAT(PoisonedTokens(of_value.values(3), len), ElementsAre(6, 7));
  Tensors of_output = GradientsWith("output");
  EXPECT_THAT(PoisonedTokens(of_output.values(0), len), ElementsAre(5));
  EXPECT_THAT(PoisonedTokens(of_output.values(1), len), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(PoisonedTokens(of_output.values(2), len), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_P(RecurrentGradient, TokensBeyondTheirLengthGetExactlyZero) {
  const RecurrentSizes s = {1, 1, 1, 6, 3, 2};
  RequestBuilder builder("delta_rule");
  const auto poisoned = [&](int64_t dim, uint64_t seed) {
    std::vector<float> values = Betas(s.len * dim, seed);
    std::fill(values.begin() + 4 * dim, values.end(), kNan);
    return values;
  };
  builder.Floats("q", {1, 1, 6, 3}, Betas(18, 1))
      .Floats("k", {1, 1, 6, 3}, poisoned(3, 2))
      .Floats("v", {1, 1, 6, 2}, poisoned(2, 3))
      .Floats("beta", {1, 1, 6}, poisoned(1, 4))
      .Integers("key_lengths", {1}, {4});
  Backward backward(builder.request());
  for (size_t n = 1; n < backward.gradients.size(); ++n) {
    const std::vector<float>& values = backward.gradients.values(n);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(std::isfinite(values[i]));
      const bool exists = i < values.size() / 6 * 4;
      EXPECT_TRUE(exists || values[i] == 0.0f);
    }
  }
}

TEST_P(RecurrentGradient, RowsWithoutWeightGetExactlyZero) {
  RequestBuilder builder("linear");
  builder.Floats("q", {1, 1, 2, 2}, {-1, -2, 1, 2})
      .Floats("k", {1, 1, 2, 2}, {1, 2, 3, 4})
      .Floats("v", {1, 1, 2, 1}, {5, 6})
      .Param("feature_map", "relu")
      .Param("causal", true);
  Backward backward(builder.request());
  backward.d_results.values(0)[0] = kNan;
  backward.Run(builder.request());
  EXPECT_EQ(backward.gradients.values(0)[0], 0.0f);
  EXPECT_EQ(backward.gradients.values(0)[1], 0.0f);
  for (size_t n = 0; n < backward.gradients.size(); ++n) {
    for (const float x : backward.gradients.values(n)) EXPECT_TRUE(std::isfinite(x));
  }
}

}  // namespace
}  // namespace heed::testing
