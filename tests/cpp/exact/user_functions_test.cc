// User functions: expressions and callables on tiles against the oracle and the built-in plugs.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/expression.h"
#include "request_builder.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class UserFunctions : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(UserFunctions);

AttentionCase Grouped() {
  return MakeCase({.batch = 2,
                   .num_heads = 4,
                   .num_kv_heads = 2,
                   .q_len = 37,
                   .kv_len = 300,
                   .head_dim = 24,
                   .head_dim_v = 17});
}

// A request that owns the tensors which its expressions read.
struct UserCase {
  AttentionCase base;
  std::vector<float> slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
  std::vector<float> table = {};

  Request request(const std::string& score_mod, const std::string& keep_mod = "") {
    Request request = base.request();
    if (!score_mod.empty()) request.params.push_back({"score_mod", score_mod});
    if (!keep_mod.empty()) request.params.push_back({"keep_mod", keep_mod});
    request.params.push_back({"return_weights", true});
    if (score_mod.empty() && keep_mod.empty()) return request;
    request.inputs.push_back({"captured.slopes", {DType::kFloat32, slopes.data(), 1, {4}, {1}}});
    if (!table.empty()) {
      request.inputs.push_back(
          {"captured.table", {DType::kFloat32, table.data(), 2, {37, 300}, {300, 1}}});
    }
    return request;
  }
};

void ExpectNear(const Values& actual, const Values& expected, double bound) {
  for (const auto& [name, values] : expected) {
    ASSERT_EQ(actual.at(name).size(), values.size()) << name;
    for (size_t n = 0; n < values.size(); ++n) {
      if (values[n] == actual.at(name)[n]) continue;
      ASSERT_NEAR(actual.at(name)[n], values[n], bound) << name << " " << n;
    }
  }
}

void ExpectMatchesOracle(const Request& request) {
  ExpectNear(RunByName(request), RunOracle(request), 8 * kAttentionMaxError);
}

TEST_P(UserFunctions, AlibiAsExpressionEqualsThePlug) {
  UserCase user{Grouped()};
  user.base.scalars.query_offset = QueryOffset::End();
  const Request expression = user.request("score - slopes[h] * abs(position - kvIndex)");
  ExpectMatchesOracle(expression);
  user.base.alibi_slopes = user.slopes;
  ExpectNear(RunByName(expression), RunByName(user.request("")), 4 * kAttentionMaxError);
}

TEST_P(UserFunctions, CausalAsExpressionEqualsTheRange) {
  UserCase user{Grouped()};
  user.base.scalars.query_offset = QueryOffset::At(40);
  const Request keep = user.request("", "kvIndex <= position");
  ExpectMatchesOracle(keep);
  const Request score = user.request("kvIndex <= position ? score : -inf");
  user.base.scalars.causal = true;
  const Values built_in = RunByName(user.request(""));
  ExpectNear(RunByName(keep), built_in, 0);
  ExpectNear(RunByName(score), built_in, 2 * kAttentionMaxError);
}

TEST_P(UserFunctions, SoftcapAsExpressionEqualsThePlug) {
  UserCase user{Grouped()};
  const Request expression = user.request("2 * tanh(score / 2)");
  ExpectMatchesOracle(expression);
  user.base.scalars.softcap = 2;
  ExpectNear(RunByName(expression), RunByName(user.request("")), 4 * kAttentionMaxError);
}

TEST_P(UserFunctions, TwoDimensionalTableEqualsTheBias) {
  UserCase user{Grouped()};
  Random random(5);
  user.base.bias = MakeBias({1, 1, 37, 300}, random);
  for (int64_t i = 0; i < 37; ++i) {
    for (int64_t j = 0; j < 300; ++j) user.table.push_back(user.base.bias(0, 0, i, j));
  }
  const Values bias = RunByName(user.request(""));
  user.base.bias = {};
  const Request expression = user.request("score + table[qIndex, kvIndex]");
  ExpectMatchesOracle(expression);
  ExpectNear(RunByName(expression), bias, 2 * kAttentionMaxError);
}

TEST_P(UserFunctions, EveryOperatorAndFunctionMatchesReference) {
  for (const std::string text : {
           "-score + 2 * (qIndex % 7) / 3 - 1.5e-1",
           "max(min(score, 1), -0.5) + floor(kvIndex / 16) * .125",
           "exp(-abs(score)) + log(1 + kvIndex) + sqrt(qIndex)",
           "sigmoid(3 * score) + sin(kvIndex / 9) - cos(qIndex)",
           "kvIndex % 3 == 1 && !(qIndex >= 9 || b != 0) ? score * 2 : score - h",
           "(b == 1 ? slopes[h] : -slopes[3 - h]) * (kvIndex > 100) + score",
           "score < 0 ? (score <= -1 ? -1 : score) : score > 2 ? 2 : score",
           "1 - 2 - 3 + score / 2 / 2",
           "-q_index % 5 + kv_index % -3 + score",
           "score - 0.01 * abs(q_idx - kv_idx)",
       }) {
    UserCase user{Grouped()};
    SCOPED_TRACE(text);
    ExpectMatchesOracle(user.request(text));
  }
}

TEST_P(UserFunctions, CombineWithEveryOtherRule) {
  UserCase user{Grouped()};
  Random random(6);
  user.base.bias = MakeBias({2, 4, 37, 300}, random, 0.3);
  user.base.keep = MakeKeep({1, 4, 37, 300}, random, 0.7);
  user.base.key_lengths = {300, 123};
  user.base.scalars.softcap = 4;
  user.base.scalars.window = Window{100, 20};
  user.base.scalars.query_offset = QueryOffset::PerBatch({0, 90});
  // What the bias hides stays hidden, whatever the expression makes of it.
  ExpectMatchesOracle(user.request("max(score, -3)", "(kvIndex + qIndex) % 5 != 2"));
}

// Biases by distance and closed gates hide keys as a bias does.
TEST_P(UserFunctions, WhatOtherBiasesHideStaysHidden) {
  for (const char* name : {"log_gates", "distance_bias", "bucket_bias"}) {
    UserCase user{Grouped()};
    Random random(4);
    const bool gates = std::string(name) == "log_gates",
               buckets = std::string(name) == "bucket_bias";
    user.base.scalars.causal = true;
    user.base.scalars.query_offset = QueryOffset::At(200);
    const std::vector<int64_t> shape = gates     ? std::vector<int64_t>{2, 4, 300}
                                       : buckets ? std::vector<int64_t>{32, 4}
                                                 : std::vector<int64_t>{4, 9};
    user.base.AddTensor(name, shape, random, 0.3);
    user.base.tensors[name].buffer.ForEach([&](int64_t, int64_t, int64_t, int64_t n, float& x) {
      x = n % 50 == 3 ? -kInf : -std::abs(x);
    });
    for (const char* text : {"0", "-score", "5 * tanh(score / 5)"}) {
      ExpectMatchesOracle(user.request(text, ""));
    }
  }
}

TEST_P(UserFunctions, RowsThatTheExpressionEmptiesAreZero) {
  UserCase user{Grouped()};
  for (const Request& request :
       {user.request("", "qIndex != 5"), user.request("qIndex == 5 ? -inf : score")}) {
    ExpectMatchesOracle(request);
    const Values values = RunByName(request);
    for (size_t d = 0; d < 17; ++d) EXPECT_EQ(values.at("output")[5 * 17 + d], 0);
  }
}

TEST_P(UserFunctions, WhatTheExpressionHidesCannotMatter) {
  UserCase user{Grouped()};
  const Request request = user.request("", "kvIndex % 10 != 3");
  const Values expected = RunByName(request);
  for (int64_t j = 3; j < 300; j += 10) {
    for (int64_t h = 0; h < 2; ++h) {
      user.base.k(0, h, j, 0) = kNan;
      user.base.v(0, h, j, 0) = kInf;
    }
  }
  const Values poisoned = RunByName(request);
  EXPECT_EQ(poisoned, expected);
}

TEST_P(UserFunctions, ReadingOutsideOfATensorGivesNanToRowsThatSeeIt) {
  UserCase user{Grouped()};
  const Values hidden = RunByName(user.request("score + slopes[kvIndex]", "kvIndex < 4"));
  for (const double x : hidden.at("output")) EXPECT_TRUE(std::isfinite(x));
  const Values seen = RunByName(user.request("score + slopes[qIndex]"));
  const size_t row = 17;
  EXPECT_TRUE(std::isfinite(seen.at("output")[3 * row]));
  EXPECT_TRUE(std::isnan(seen.at("output")[4 * row]));
  EXPECT_TRUE(std::isnan(RunByName(user.request("score + slopes[-1]")).at("output")[0]));
  EXPECT_TRUE(std::isnan(RunByName(user.request("score + slopes[0/0]")).at("output")[0]));
}

TEST_P(UserFunctions, SameBitsForAnyThreadCount) {
  AttentionCase c = Grouped();
  c.scalars.score_mod =
      CompileExpression("score_mod", "score * 0.5 + sin(kvIndex)", ExpressionValue::kScore);
  const auto one = MakeThreadPool(1);
  const std::vector<uint32_t> expected = Bits(RunAttention(c, {}, one.get()).output);
  for (const int threads : {2, 3, 7}) {
    const auto pool = MakeThreadPool(threads);
    EXPECT_EQ(Bits(RunAttention(c, {}, pool.get()).output), expected) << threads;
  }
}

TEST_P(UserFunctions, CallablesSeeEveryVisibleCell) {
  AttentionCase c = Grouped();
  c.scalars.query_offset = QueryOffset::At(7);
  AttentionCase built_in = c;
  built_in.scalars.causal = true;
  built_in.alibi_slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
  c.scalars.score_mod = [](const PairTile& tile) {
    for (size_t r = 0; r < tile.num_rows; ++r) {
      const float slope = std::ldexp(1.0f, static_cast<int>(-1 - tile.rows[r].head));
      for (size_t n = 0; n < tile.num_keys; ++n) {
        const int64_t key = tile.key_begin + static_cast<int64_t>(n);
        const int64_t distance = std::abs(tile.rows[r].position - key);
        tile.values[r * tile.row_stride + n] -= slope * static_cast<float>(distance);
      }
    }
  };
  c.scalars.keep_mod = [](const PairTile& tile) {
    for (size_t r = 0; r < tile.num_rows; ++r) {
      for (size_t n = 0; n < tile.num_keys; ++n) {
        const bool kept = tile.key_begin + static_cast<int64_t>(n) <= tile.rows[r].position;
        tile.values[r * tile.row_stride + n] = kept ? 1.0f : 0.0f;
      }
    }
  };
  ExpectResultsMatch(built_in, RunAttention(c, {.weights = true}), RunOracle(built_in));
}

std::string MessageOf(const std::string& text, ExpressionValue value = ExpressionValue::kScore) {
  static const float zeros[12] = {};
  try {
    CompileExpression("score_mod", text, value, {{"table", 2, {3, 4}, {4, 1}, zeros}});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Expression, ErrorsNameThePlaceAndTheExpectation) {
  EXPECT_THAT(MessageOf("score +"), HasSubstr("expected a number, a name or `(`, at its end"));
  EXPECT_THAT(MessageOf("score slope"), HasSubstr("expected an operator or the end, at `slope`"));
  EXPECT_THAT(MessageOf("scores * 2"), HasSubstr("`scores` is unknown; known names are score, b"));
  EXPECT_THAT(MessageOf("(score"), HasSubstr("expected `)`"));
  EXPECT_THAT(MessageOf("b ? 1"), HasSubstr("expected `:`"));
  EXPECT_THAT(MessageOf("max(score)"), HasSubstr("expected `,`"));
  EXPECT_THAT(MessageOf("table[1]"), HasSubstr("`table` has 2 dimensions and got 1 indices"));
  EXPECT_THAT(MessageOf("table"), HasSubstr("got 0 indices"));
  EXPECT_THAT(MessageOf("1e"), HasSubstr("digits after the `e`"));
  EXPECT_THAT(MessageOf("."), HasSubstr("expected a number"));
  EXPECT_THAT(MessageOf("1 .5"), HasSubstr("expected an operator or the end, at `.5`"));
  EXPECT_THAT(MessageOf("1. 5"), HasSubstr("expected an operator or the end, at `5`"));
  EXPECT_THAT(MessageOf(""), HasSubstr("expected a number, a name"));
  EXPECT_THAT(MessageOf("score", ExpressionValue::kKeep), HasSubstr("`score` is unknown"));
  EXPECT_THAT(MessageOf(std::string(5000, '1')), HasSubstr("longer than 4096"));
  EXPECT_THAT(MessageOf(std::string(200, '(') + "1" + std::string(200, ')')),
              HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(MessageOf("score\n+ \t1"), "");
}

TEST(Expression, CapturedTensorsMayNotHideOtherNames) {
  const auto capture = [](const char* name, ExpressionValue value) -> std::string {
    static const float zero = 0;
    try {
      CompileExpression("mod", "1", value, {{name, 0, {}, {}, &zero}});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  for (const char* name : {"score", "b", "kv_index", "position", "inf", "max"}) {
    EXPECT_THAT(capture(name, ExpressionValue::kScore),
                HasSubstr("mod: a captured tensor is called `" + std::string(name) + "`"));
  }
  EXPECT_EQ(capture("prob", ExpressionValue::kScore), "");
  EXPECT_THAT(capture("prob", ExpressionValue::kProb), HasSubstr("`prob`"));
}

TEST(Expression, TooManyValuesAtOnceAreRefused) {
  std::string text = "score";
  for (int n = 0; n < 30; ++n) text = "(score * " + std::to_string(n) + ") + (" + text + ")";
  EXPECT_THAT(MessageOf(text), HasSubstr("24 intermediate values"));
}

TEST(Expression, FunctionsAreDefinedForEveryArgument) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const std::vector<float> x = {kNan,  kInf,  -kInf,  0.0f,  -0.0f, 1.0f,   -1.0f, 88.0f,
                                100.f, -90.f, -1e30f, 1e30f, tiny,  1e-20f, 30.0f, -30.0f};
  const std::pair<const char*, double (*)(double)> functions[] = {
      {"exp", [](double v) { return std::exp(v); }},
      {"log", [](double v) { return std::log(v); }},
      {"tanh", [](double v) { return std::tanh(v); }},
      {"sqrt", [](double v) { return std::sqrt(v); }},
      {"sigmoid", [](double v) { return 1 / (1 + std::exp(-v)); }},
  };
  for (const auto& [name, function] : functions) {
    std::vector<float> values = x;
    const PairTile::Row row = {0, 0, 0};
    const PairTile tile = {0, &row, 1, 0, values.size(), values.data(), values.size()};
    CompileExpression("f", std::string(name) + "(score)", ExpressionValue::kScore)(tile);
    for (size_t n = 0; n < x.size(); ++n) {
      const double expected = function(x[n]);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(values[n])) << name << "(" << x[n] << ") = " << values[n];
      } else if (std::isinf(static_cast<float>(expected))) {
        EXPECT_EQ(values[n], static_cast<float>(expected)) << name << "(" << x[n] << ")";
      } else if (x[n] != tiny) {  // denormal arguments and results may count as zero
        EXPECT_NEAR(values[n], expected, 5e-7 * std::abs(expected) + 1e-37)
            << name << "(" << x[n] << ")";
      }
    }
  }
}

TEST(Expression, PositionNeedsAnOffsetWhenLengthsDiffer) {
  UserCase user{Grouped()};
  try {
    RunByName(user.request("score - position"));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("query_offset"));
    EXPECT_THAT(error.what(), HasSubstr("end"));
  }
  EXPECT_NO_THROW(RunByName(user.request("score - qIndex")));
}

}  // namespace
}  // namespace heed::testing
