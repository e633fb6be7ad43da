// Users' feature maps: expressions and callables against the words that say the same, the oracle,
// and each other; where what they read and write stays; and what is refused.
#include "heed/feature_map.h"

#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <string>
#include <vector>

#include "allocations.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/dtype.h"
#include "heed/error.h"
#include "heed/recurrent.h"
#include "recurrent/recurrent_call.h"
#include "recurrent_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

class UserFeatureMap : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(UserFeatureMap);

std::vector<double> Doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

void Evaluate(const char* text, std::vector<float>& values, size_t dims) {
  CompileFeatureMap("f", text)({0, 0, false, values.size() / dims, dims, values.data(), dims});
}

TEST_P(UserFeatureMap, SaysTheSameAsTheWords) {
  const std::pair<const char*, const char*> maps[] = {
      {"elu_plus_one", "x > 0 ? x + 1 : exp(x)"}, {"relu", "max(x, 0)"}, {"identity", "x"}};
  for (const auto& [word, text] : maps) {
    const bool divided = std::string(word) != "identity";  // signed weights sum to almost nothing
    for (const RecurrentSizes& s : ManySizes()) {
      for (const bool causal : {false, true}) {
        const auto run = [&](const char* param, const char* value) {
          RequestBuilder builder = RecurrentRequest("linear", s, 5);
          builder.Param(param, value).Param("causal", causal).Param("return_state", true);
          builder.Param("weight_sum", divided ? "one" : "free");
          return RunByName(builder.request());
        };
        const Values built_in = run("feature_map", word), user = run("feature_mod", text);
        for (const auto& [name, values] : built_in) {
          const std::string what = std::string(word) + " " + std::to_string(s.len) + " " + name;
          ExpectResultsNear(user.at(name), values, 2 * kRecurrentMaxError, what);
        }
      }
    }
  }
}

// h, b, d, the side, and tensors: with grouped heads, and wider than the interpreter's rows.
TEST_P(UserFeatureMap, MatchesReference) {
  const RecurrentSizes sizes[] = {{2, 4, 2, 70, 20, 12}, {1, 1, 1, 67, 1, 3}, {1, 2, 1, 5, 300, 4}};
  for (const RecurrentSizes& s : sizes) {
    for (const char* text :
         {"exp(x)", "max(x, 0) * weight[h, d] + 0.01", "isKey ? exp(x / 2) : sigmoid(x) + b",
          "sqrt(1 + x * x) + (d % 3 == h ? 1 : 0.5)", "is_key + exp(-abs(x)) * (d + 1)", "2"}) {
      for (const bool causal : {false, true}) {
        RequestBuilder builder = RecurrentRequest("linear", s, 3);
        builder.Param("feature_map", "user").Param("feature_mod", text).Param("causal", causal);
        builder.Floats("captured.weight", {s.num_heads, s.head_dim},
                       Betas(s.num_heads * s.head_dim, 4));
        builder.Param("return_state", true).Param("chunk_len", 33.0).Param("scale", 0.7);
        ExpectMatchesOracle(builder.request(), text + std::string(" ") + std::to_string(s.len));
      }
    }
  }
}

TEST_P(UserFeatureMap, GivesTheNumbersOfItsDefinition) {
  // Features x^2 of (1, 0) are (1, 0), of (2, 3) are (4, 9): weights 1 : 4.
  RequestBuilder builder("linear");
  builder.Floats("q", {1, 1, 2, 2}, {1, 0, 0, 1})
      .Floats("k", {1, 1, 2, 2}, {1, 0, 2, 3})
      .Floats("v", {1, 1, 2, 1}, {5, 10})
      .Param("feature_mod", "x * x");
  ExpectResultsNear(RunByName(builder.request()).at("output"), {9, 10}, 1e-6, "1 : 4, and 0 : 9");
}

TEST_P(UserFeatureMap, StatesAndLengthsMatchReference) {
  for (const bool causal : {false, true}) {
    ExpectStatesAndLengthsMatchOracle(
        "linear",
        [causal](RequestBuilder& builder, const RecurrentSizes&) {
          builder.Param("feature_mod", "exp(x) + h").Param("causal", causal);
        },
        1);
  }
}

// With every rule that takes a feature map; those of one token too.
TEST_P(UserFeatureMap, OfTheElementItselfIsTheIdentity) {
  for (const Kind kind : {Kind::kPlain, Kind::kPlainDelta, Kind::kDecay, Kind::kDecayDelta,
                          Kind::kChannels, Kind::kChannelsDelta, Kind::kLevels}) {
    Call identity(kind), user(kind);
    identity.options.feature_map = FeatureMap::kIdentity;
    user.options.feature_map = FeatureMap::kUser;
    user.options.feature_mod = CompileFeatureMap("feature_mod", "x");
    identity.Run();
    user.Run();
    EXPECT_EQ(user.output, identity.output) << static_cast<int>(kind);
    EXPECT_EQ(user.state, identity.state) << static_cast<int>(kind);
    const auto step = [](Call& c) {
      RecurrentOptions options = c.OptionsOf(0, 1);
      std::fill(c.state.begin(), c.state.end(), 0.0f);
      RecurrentStep(Tokens(c.Q(), 0, 1), Tokens(c.K(), 0, 1), Tokens(c.V(), 0, 1), options,
                    c.State(), Tokens(c.Output(), 0, 1));
    };
    step(identity);
    step(user);
    EXPECT_EQ(user.output, identity.output) << static_cast<int>(kind) << ", step";
    EXPECT_EQ(user.state, identity.state) << static_cast<int>(kind) << ", step";
  }
}

TEST_P(UserFeatureMap, CallablesAreToldWhoseRowsTheyMap) {
  Call call(Kind::kUser);
  call.Run();
  const std::vector<double> expected = Doubles(call.output);
  call.options.feature_mod = [](const FeatureRows& rows) {
    for (size_t r = 0; r < rows.num_rows; ++r) {
      float* row = rows.values + r * rows.row_stride;
      for (size_t d = 0; d < rows.num_dims; ++d) {
        const float factor = static_cast<float>(1 + rows.head + (rows.is_key ? 1 : 0));
        row[d] = std::exp(2 * row[d]) * factor + static_cast<float>(d);
      }
    }
  };
  call.Run();
  ExpectResultsNear(Doubles(call.output), expected, 2 * kRecurrentMaxError, "callable");
}

TEST_P(UserFeatureMap, StorageOfTwoBytesGivesTheResultsOfItsValues) {
  const RecurrentSizes s = {1, 2, 1, 20, 8, 5};
  RequestBuilder builder = RecurrentRequest("linear", s, 6);
  builder.Param("feature_mod", "exp(x / 2) + d / 4").Param("causal", true);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    Request half = builder.request();
    std::deque<std::vector<uint16_t>> stored;
    for (NamedTensor& input : half.inputs) {
      std::vector<uint16_t>& bits = stored.emplace_back();
      const float* values = static_cast<const float*>(input.tensor.data);
      for (int64_t n = 0; n < input.tensor.shape[0] * input.tensor.strides[0]; ++n) {
        bits.push_back(dtype == DType::kFloat16 ? ToFloat16(values[n]).bits
                                                : ToBFloat16(values[n]).bits);
      }
      input.tensor.data = bits.data();
      input.tensor.dtype = dtype;
    }
    ExpectMatchesOracle(half, DTypeName(dtype));
  }
}

TEST_P(UserFeatureMap, WhatIsNotFiniteStaysInItsHead) {
  const RecurrentSizes s = {2, 4, 2, 70, 12, 6};
  for (const bool causal : {false, true}) {
    const auto run = [&](const char* text) {
      RequestBuilder builder = RecurrentRequest("linear", s, 7);
      builder.Param("feature_mod", text).Param("causal", causal);
      return RunByName(builder.request()).at("output");
    };
    const std::vector<double> clean = run("exp(x)");
    // Keys of KV head 1 serve query heads 2 and 3; of query head 1 only its own rows suffer.
    const std::vector<double> keys = run("isKey && h == 1 ? log(-1 - x * x) : exp(x)");
    const std::vector<double> queries = run("!isKey && h == 1 ? inf : exp(x)");
    for (size_t n = 0; n < clean.size(); ++n) {
      const size_t head = n / (70 * 6) % 4;
      EXPECT_EQ(std::isfinite(keys[n]), head < 2) << n;
      EXPECT_EQ(std::isfinite(queries[n]), head != 1) << n;
      if (head < 2) {
        EXPECT_EQ(keys[n], clean[n]) << n;
      }
      if (head != 1) {
        EXPECT_EQ(queries[n], clean[n]) << n;
      }
    }
  }
}

TEST_P(UserFeatureMap, TouchesNothingBetweenRows) {
  for (const size_t dims : {1u, 3u, 64u, 200u, 256u, 257u, 600u}) {
    const size_t stride = dims + 5, rows = 7;
    std::vector<float> values(rows * stride, 0.5f);
    CompileFeatureMap("f", "x + 8 * d + h")({0, 3, true, rows, dims, values.data(), stride});
    for (size_t n = 0; n < values.size(); ++n) {
      const size_t d = n % stride;
      const float expected = d < dims ? 0.5f + 8 * static_cast<float>(d) + 3 : 0.5f;
      ASSERT_EQ(values[n], expected) << dims << ", element " << n;
    }
  }
}

TEST(FeatureMapSteps, AllocateNothing) {
  const float x[4] = {0.5f, -1, 2, 0.25f};
  float state[20] = {}, output[4];
  const TensorView<const float> row = Contiguous(x, 1, 1, 1, 4);
  RecurrentOptions options;
  options.normalize = true;
  options.feature_map = FeatureMap::kUser;
  options.feature_mod = CompileFeatureMap("feature_mod", "x > 0 ? x + 1 : exp(x)");
  const int64_t before = Allocations();
  for (int n = 0; n < 10'000; ++n) {
    RecurrentStep(row, row, row, options, Contiguous(state, 1, 1, 4, 5),
                  Contiguous(output, 1, 1, 1, 4));
  }
  EXPECT_EQ(Allocations(), before);
  for (size_t e = 0; e < 4; ++e) EXPECT_NEAR(output[e], x[e], 1e-4);
}

TEST(FeatureMapErrors, NameTheParameterAndWhatIsExpected) {
  const auto message = [](const char* map, const char* mod) -> std::string {
    RequestBuilder builder = RecurrentRequest("linear", {}, 1);
    if (map != nullptr) builder.Param("feature_map", map);
    if (mod != nullptr) {
      builder.Param("feature_mod", mod);
      builder.Floats("captured.table", {2, 3}, std::vector<float>(6));
    }
    try {
      RunByName(builder.request());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(),
                std::string(mod ? mod : "") == "table[h]" ? ErrorCode::kShape : ErrorCode::kOption);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("user", "x"), "");
  EXPECT_EQ(message(nullptr, "x"), "");
  EXPECT_THAT(message("user", nullptr), HasSubstr("feature_mod is missing"));
  EXPECT_THAT(message("relu", "x"), HasSubstr("feature_mod is given beside feature_map = relu"));
  EXPECT_THAT(message("gelu", nullptr), HasSubstr("gelu"));
  EXPECT_THAT(message("gelu", nullptr), HasSubstr("user"));
  EXPECT_THAT(message(nullptr, "x +"), HasSubstr("feature_mod: expected a number, a name or `(`"));
  EXPECT_THAT(message(nullptr, "gelu(x)"),
              HasSubstr("`gelu` is unknown; known names are x, b, h, d, isKey, inf, table"));
  EXPECT_THAT(message(nullptr, "score"), HasSubstr("`score` is unknown"));
  EXPECT_THAT(message(nullptr, "position"), HasSubstr("`position` is unknown"));
  EXPECT_THAT(message(nullptr, "table[h]"), HasSubstr("has 2 dimensions and got 1 indices"));
}

TEST(FeatureMapErrors, OfOptionsNameTheArgument) {
  const auto expect = [](ErrorCode code, const std::string& part, const auto& change) {
    Call call;
    change(call.options);
    try {
      call.Run();
      FAIL() << "accepted: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
    for (const float x : call.output) ASSERT_TRUE(std::isnan(x)) << "written before the error";
  };
  const FeatureFunction nothing = [](const FeatureRows&) {};
  expect(ErrorCode::kOption, "feature_mod is missing",
         [](RecurrentOptions& o) { o.feature_map = FeatureMap::kUser; });
  expect(ErrorCode::kOption, "feature_mod is given beside another feature_map",
         [&](RecurrentOptions& o) { o.feature_mod = nothing; });
  expect(ErrorCode::kShape, "v has 10 columns", [](RecurrentOptions& o) {
    o = {};
    o.mini_batch = 4;
  });
  expect(ErrorCode::kUnsupported, "mini_batch", [&](RecurrentOptions& o) {
    o = {};
    o.mini_batch = 4;
    o.feature_map = FeatureMap::kUser;
    o.feature_mod = nothing;
  });
}

// A row by itself gives the same bits as among others.
TEST_P(UserFeatureMap, OfARowDoesNotDependOnItsNeighbours) {
  std::vector<float> together = LogDecays(9 * 40, 3);
  const std::vector<float> rows = together;
  const char* text = "exp(x) + tanh(3 * x) * d";
  Evaluate(text, together, 40);
  for (size_t r = 0; r < 9; ++r) {
    std::vector<float> alone(rows.begin() + static_cast<std::ptrdiff_t>(r * 40),
                             rows.begin() + static_cast<std::ptrdiff_t>((r + 1) * 40));
    Evaluate(text, alone, 40);
    EXPECT_EQ(std::memcmp(alone.data(), &together[r * 40], 40 * sizeof(float)), 0) << r;
  }
}

}  // namespace
}  // namespace heed::testing
