// The registry: what the list says, how requests are planned and run by name, and what is refused.
#include "heed/registry.h"

#include <iterator>
#include <limits>
#include <set>
#include <sstream>
#include <string>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/reference.h"
#include "request_builder.h"

namespace heed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> Words(std::string_view list) {
  std::istringstream stream{std::string(list)};
  return {std::istream_iterator<std::string>(stream), {}};
}

// q [1,1,2,2], k = v [1,1,3,2].
RequestBuilder Small(const std::string& id = "scaled_dot_product") {
  RequestBuilder builder(id);
  builder.Floats("q", {1, 1, 2, 2}, {1, 0, 0, 1})
      .Floats("k", {1, 1, 3, 2}, {1, 0, 1, 1, 0, 1})
      .Floats("v", {1, 1, 3, 2}, {1, 0, 0, 2, 1, 1});
  return builder;
}

// Both the library and the oracle refuse the request, with the same code and naming `name`.
void ExpectRefused(const RequestBuilder& builder, ErrorCode code, const std::string& name) {
  for (const bool oracle : {false, true}) {
    try {
      if (oracle) {
        reference::Run(builder.request());
      } else {
        PlanOutputs(builder.request());
      }
      ADD_FAILURE() << name << ": no error was thrown by " << (oracle ? "the oracle" : "heed");
    } catch (const Error& error) {
      EXPECT_STREQ(ErrorCodeName(error.code()), ErrorCodeName(code))
          << (oracle ? "the oracle: " : "heed: ") << error.what();
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
  }
}

TEST(Registry, RowsAreCompleteAndUnique) {
  std::set<std::string_view> ids;
  for (const Mechanism& m : Mechanisms()) {
    EXPECT_TRUE(ids.insert(m.id).second) << m.id;
    EXPECT_EQ(FindMechanism(m.id), &m);
    for (const std::string_view field : {m.family, m.title, m.source, m.summary, m.formula,
                                         m.inputs, m.params, m.cost, m.capabilities}) {
      EXPECT_FALSE(field.empty()) << m.id;
    }
    EXPECT_GT(m.year, 1900);
  }
  EXPECT_GE(ids.size(), 2u);
  EXPECT_EQ(FindMechanism("no_such_mechanism"), nullptr);
}

TEST(Registry, EveryParameterOfAMechanismIsDescribed) {
  std::set<std::string> described;
  for (const Parameter& p : Parameters()) {
    EXPECT_TRUE(described.insert(std::string(p.name)).second) << p.name;
    EXPECT_FALSE(p.summary.empty()) << p.name;
  }
  for (const Mechanism& m : Mechanisms()) {
    for (const std::string& word : Words(m.params)) EXPECT_TRUE(described.count(word)) << word;
  }
}

TEST(Registry, PlansOutputsWithTheirShapes) {
  const auto plan = PlanOutputs(Small()
                                    .Param("return_lse", true)
                                    .Param("return_weights", true)
                                    .Param("return_scores", "raw")
                                    .request());
  ASSERT_EQ(plan.size(), 4u);
  const char* names[] = {"output", "lse", "weights", "scores"};
  const std::vector<int64_t> shapes[] = {{1, 1, 2, 2}, {1, 1, 2}, {1, 1, 2, 3}, {1, 1, 2, 3}};
  for (size_t n = 0; n < 4; ++n) {
    EXPECT_EQ(plan[n].name, names[n]);
    const auto begin = plan[n].shape.begin();
    EXPECT_EQ(std::vector<int64_t>(begin, begin + plan[n].rank), shapes[n]);
  }
  EXPECT_EQ(PlanOutputs(Small().request()).size(), 1u);
}

TEST(Registry, RunByNameEqualsTheTypedCall) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = 9,
                              .kv_len = 30,
                              .head_dim = 8,
                              .head_dim_v = 8});
  Random random(1);
  c.scalars.causal = true;
  c.scalars.softcap = 3.0;
  c.scalars.scale = 0.7;
  c.scalars.window = Window{7, 2};
  c.scalars.query_offset = QueryOffset::PerBatch({10, 21});
  c.alibi_slopes = AlibiSlopes(4);
  c.sinks = {0, 1, 2, 3};
  c.key_lengths = {30, 22};
  c.keep = MakeKeep({1, 1, 9, 30}, random, 0.8);
  c.bias = MakeBias({1, 4, 1, 30}, random);
  const Results typed =
      RunAttention(c, {.lse = true, .weights = true, .scores = ScoreStage::kCapped});
  Request request = c.request();
  request.params.push_back({"return_lse", true});
  request.params.push_back({"return_weights", true});
  request.params.push_back({"return_scores", std::string("capped")});
  const Values named = RunByName(request);
  const auto same = [&](const Buffer<float>& buffer, const char* name) {
    const std::vector<float> elements = buffer.Elements();
    EXPECT_EQ(std::vector<double>(elements.begin(), elements.end()), named.at(name)) << name;
  };
  same(typed.output, "output");
  same(typed.lse, "lse");
  same(typed.weights, "weights");
  same(typed.scores, "scores");
}

TEST(Registry, BiasAndKeepOfRankTwoCoverEveryBatchEntryAndHead) {
  RequestBuilder builder = Small();
  builder.Floats("bias", {2, 3}, {0, 1, 2, 3, 4, 5}).Bytes("keep", {2, 3}, {1, 1, 0, 1, 0, 1});
  const std::vector<double> actual = RunByName(builder.request()).at("output");
  const std::vector<double> expected = RunOracle(builder.request()).at("output");
  for (size_t n = 0; n < 4; ++n) EXPECT_NEAR(actual[n], expected[n], 1e-6);
}

TEST(Registry, UnknownNamesAreRefused) {
  ExpectRefused(Small("scaled_dot_prodct"), ErrorCode::kOption, "scaled_dot_prodct");
  ExpectRefused(Small().Param("casual", true), ErrorCode::kOption, "casual");
  ExpectRefused(Small().Param("kernel", "boxcar"), ErrorCode::kOption, "kernel");
  ExpectRefused(Small().Bytes("mask", {2, 3}, {1, 1, 1, 1, 1, 1}), ErrorCode::kOption, "mask");
  ExpectRefused(Small("kernel_regression").Floats("sinks", {1}, {0}), ErrorCode::kOption, "sinks");
  ExpectRefused(Small("kernel_regression").Param("kernel", "cosine"), ErrorCode::kOption, "cosine");
  ExpectRefused(Small().Param("return_scores", "cooked"), ErrorCode::kOption, "return_scores");
  ExpectRefused(Small().Param("query_offset", "start"), ErrorCode::kOption, "query_offset");
}

TEST(Registry, MissingAndDoubleInputsAreRefused) {
  RequestBuilder without_v("scaled_dot_product");
  without_v.Floats("q", {1, 1, 1, 1}, {1}).Floats("k", {1, 1, 1, 1}, {1});
  ExpectRefused(without_v, ErrorCode::kOption, "v");
  ExpectRefused(Small().Floats("q", {1, 1, 2, 2}, {1, 0, 0, 1}), ErrorCode::kOption, "q");
  ExpectRefused(Small("kernel_regression").Floats("width", {1}, {2}).Param("width", 2.0),
                ErrorCode::kOption, "width");
}

TEST(Registry, ElementTypesAreChecked) {
  ExpectRefused(Small().Floats("keep", {2, 3}, {1, 1, 1, 1, 1, 1}), ErrorCode::kDType, "keep");
  ExpectRefused(Small().Bytes("bias", {2, 3}, {1, 1, 1, 1, 1, 1}), ErrorCode::kDType, "bias");
  ExpectRefused(Small().Floats("key_lengths", {1}, {2}), ErrorCode::kDType, "key_lengths");
}

TEST(Registry, ParameterTypesAndRangesAreChecked) {
  ExpectRefused(Small().Param("scale", kNan), ErrorCode::kRange, "scale");
  ExpectRefused(Small().Param("softcap", -1.0), ErrorCode::kRange, "softcap");
  ExpectRefused(Small().Param("window_left", -1.0), ErrorCode::kRange, "window");
  ExpectRefused(Small().Param("window_right", 1.5), ErrorCode::kRange, "window_right");
  ExpectRefused(Small().Param("query_offset", 0.5), ErrorCode::kRange, "query_offset");
  ExpectRefused(Small().Param("query_offset", kNan), ErrorCode::kRange, "query_offset");
  ExpectRefused(Small().Param("causal", 1.0), ErrorCode::kOption, "causal");
  ExpectRefused(Small().Param("scale", "big"), ErrorCode::kOption, "scale");
  ExpectRefused(Small().Param("causal", true), ErrorCode::kOption, "query_offset");
  ExpectRefused(Small().Param("scale", 1.0).Param("scale", 2.0), ErrorCode::kOption, "twice");
  ExpectRefused(Small("kernel_regression").Param("width", 0.0), ErrorCode::kRange, "width");
  ExpectRefused(Small("kernel_regression").Param("width", std::vector<double>{1, 1, 1}),
                ErrorCode::kShape, "width");
  ExpectRefused(Small("kernel_regression").Param("width", std::vector<double>{}), ErrorCode::kShape,
                "width");
  ExpectRefused(Small("kernel_regression").Param("kernel", "boxcar").Param("return_lse", true),
                ErrorCode::kUnsupported, "lse");
}

TEST(Registry, RanksAndShapesAreChecked) {
  RequestBuilder rank3("scaled_dot_product");
  rank3.Floats("q", {1, 2, 2}, {1, 0, 0, 1})
      .Floats("k", {1, 1, 1, 2}, {1, 0})
      .Floats("v", {1, 1, 1, 2}, {1, 0});
  ExpectRefused(rank3, ErrorCode::kShape, "q");
  ExpectRefused(Small().Bytes("keep", {1, 2, 3}, {1, 1, 1, 1, 1, 1}), ErrorCode::kShape, "keep");
  ExpectRefused(Small().Floats("bias", {3, 2}, {1, 1, 1, 1, 1, 1}), ErrorCode::kShape, "bias");
  ExpectRefused(Small().Floats("sinks", {2}, {1, 1}), ErrorCode::kShape, "sinks");
  ExpectRefused(Small().Floats("alibi_slopes", {1, 2}, {1, 1}).Param("query_offset", 0.0),
                ErrorCode::kShape, "alibi_slopes");
  ExpectRefused(Small().Integers("key_lengths", {3}, {1, 1, 1}), ErrorCode::kShape, "key_lengths");
  // As many values as [batch, q_len], but the wrong way round.
  ExpectRefused(Small().Integers("key_lengths", {2, 1}, {1, 1}), ErrorCode::kShape, "key_lengths");
}

TEST(Registry, OutputTensorsMustBeThoseOfThePlan) {
  std::vector<float> memory(4, 7.0f);
  const AnyTensor good{DType::kFloat32, memory.data(), 4, {1, 1, 2, 2}, {4, 4, 2, 1}};
  const auto refused = [&](const std::vector<NamedTensor>& outputs, ErrorCode code,
                           const char* name) {
    try {
      heed::Run(Small().request(), outputs);
      ADD_FAILURE() << "no error was thrown";
    } catch (const Error& error) {
      EXPECT_STREQ(ErrorCodeName(error.code()), ErrorCodeName(code)) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
    EXPECT_EQ(memory, std::vector<float>(4, 7.0f));
  };
  refused({}, ErrorCode::kOption, "output");
  refused({{"output", good}, {"weights", good}}, ErrorCode::kOption, "weights");
  AnyTensor bytes = good, small = good, rank3 = good;
  bytes.dtype = DType::kUint8;
  small.shape[3] = 1;
  rank3.rank = 3;
  refused({{"output", bytes}}, ErrorCode::kDType, "output");
  refused({{"output", small}}, ErrorCode::kShape, "output");
  refused({{"output", rank3}}, ErrorCode::kShape, "output");
}

}  // namespace
}  // namespace heed::testing
