// The classifier: the reference, hand-computed numbers, its limits, and what is refused.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention_accuracy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/layers.h"
#include "heed/registry.h"
#include "layer_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kBatch = 3, kLen = 21, kDim = 24, kVocabulary = 50, kClasses = 5;

class AttentionClassifierLayer : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AttentionClassifierLayer);

// The tensors of LayerCase, and tokens.
struct ClassifierCase {
  LayerCase layer;
  std::vector<int32_t> tokens;

  RequestBuilder Build() const {
    RequestBuilder builder = layer.Build();
    builder.Integers("tokens", {layer.sizes.batch, layer.sizes.q_len}, tokens);
    return builder;
  }
};

ClassifierCase MakeClassifier() {
  ClassifierCase c = {
      {"attention_classifier", {.batch = kBatch, .q_len = kLen, .kv_len = kLen}, {}, {}, {}, {}},
      {}};
  Random random(1);
  const auto draw = [&](const std::string& name, const std::vector<int64_t>& shape, double size) {
    c.layer.tensors[name] = DrawFloats(random, shape, size);
  };
  draw("embedding", {kVocabulary, kDim}, 1);
  draw("w_q", {4, 6, kDim}, 0.2);
  draw("w_k", {2, 6, kDim}, 0.2);
  draw("w_v", {2, 5, kDim}, 0.2);
  draw("w_o", {kDim, 4, 5}, 0.2);
  draw("w_class", {kClasses, kDim}, 0.2);
  for (int64_t n = 0; n < kBatch * kLen; ++n) {
    c.tokens.push_back(static_cast<int32_t>(random.Integer(0, kVocabulary - 1)));
  }
  return c;
}

void ExpectClassifierMatchesReference(const ClassifierCase& c) {
  const RequestBuilder builder = c.Build();
  const std::vector<double> expected = RunOracle(builder.request()).at("output");
  const std::vector<double> got = RunByName(builder.request()).at("output");
  // Attended rows are below 4 here; a row of w_class sums to less than 8, b_class is below 4.
  ExpectWithin(std::vector<float>(got.begin(), got.end()), expected,
               std::vector<double>(expected.size(), kMultiHeadMaxError * 8), "logits");
}

TEST_P(AttentionClassifierLayer, MatchesReferenceWithEveryPooling) {
  for (const char* pooling : {"mean", "first", "max", "attention"}) {
    ClassifierCase c = MakeClassifier();
    Random random(3);
    c.layer.params["pooling"] = std::string(pooling);
    if (std::string(pooling) == "attention") {
      c.layer.tensors["pool_query"] = DrawFloats(random, {kDim}, 1);
    }
    ExpectClassifierMatchesReference(c);
    c.layer.tensors["position_table"] = DrawFloats(random, {kLen + 4, kDim}, 1);
    c.layer.tensors["b_class"] = DrawFloats(random, {kClasses}, 1);
    c.layer.tensors["b_o"] = DrawFloats(random, {kDim}, 1);
    c.layer.key_lengths = {kLen, 7, 0};
    c.layer.params["causal"] = true;
    ExpectClassifierMatchesReference(c);
  }
}

// Two tokens with embeddings 1 and 3, queries of zero: each row attends to the mean, 2; pooling
// keeps it; the classes double and negate it.
TEST_P(AttentionClassifierLayer, GivesHandComputedNumbers) {
  RequestBuilder builder("attention_classifier");
  builder.Integers("tokens", {1, 2}, {2, 0})
      .Floats("embedding", {3, 1}, {3, 100, 1})
      .Floats("w_q", {1, 1, 1}, {0})
      .Floats("w_k", {1, 1, 1}, {1})
      .Floats("w_v", {1, 1, 1}, {1})
      .Floats("w_o", {1, 1, 1}, {1})
      .Floats("w_class", {2, 1}, {2, -1})
      .Floats("b_class", {2}, {0, 0.5f});
  EXPECT_THAT(RunByName(builder.request()).at("output"), ElementsAre(4, -1.5));
}

TEST_P(AttentionClassifierLayer, ReducesToItsBiasForAnEmptySequence) {
  ClassifierCase c = MakeClassifier();
  c.layer.tensors["b_class"] = {{kClasses}, {1, 2, 3, 4, 5}};
  c.layer.key_lengths = {kLen, 0, 3};
  const std::vector<double> output = RunByName(c.Build().request()).at("output");
  for (size_t o = 0; o < kClasses; ++o)
    EXPECT_EQ(output[kClasses + o], 1.0 + static_cast<double>(o));
}

TEST_P(AttentionClassifierLayer, TokensBeyondTheLengthAreNeverRead) {
  ClassifierCase c = MakeClassifier();
  c.layer.key_lengths = {kLen, 7, 3};
  const Values clean = RunByName(c.Build().request());
  std::fill(c.tokens.begin() + kLen + 7, c.tokens.begin() + 2 * kLen, -1);
  std::fill(c.tokens.begin() + 2 * kLen + 3, c.tokens.end(), kVocabulary - 1);
  EXPECT_EQ(RunByName(c.Build().request()), clean);
}

TEST_P(AttentionClassifierLayer, NanInOneSequenceStaysThere) {
  ClassifierCase c = MakeClassifier();
  std::ranges::replace(c.tokens, 7, 8);
  const std::vector<double> clean = RunByName(c.Build().request()).at("output");
  c.tokens[kLen + 2] = 7;
  c.layer.tensors["embedding"].values[7 * kDim] = kNan;
  const std::vector<double> spoilt = RunByName(c.Build().request()).at("output");
  for (size_t n = 0; n < clean.size(); ++n) {
    const bool lost = n / kClasses == 1;
    EXPECT_EQ(std::isnan(spoilt[n]), lost) << n;
    if (!lost) {
      EXPECT_EQ(spoilt[n], clean[n]) << n;
    }
  }
}

TEST(AttentionClassifierBoundary, RefusesWhatDoesNotFit) {
  const auto refused = [](ErrorCode code, const std::string& text, auto change) {
    ClassifierCase c = MakeClassifier();
    change(c);
    const RequestBuilder builder = c.Build();
    for (const bool oracle : {false, true}) {
      try {
        oracle ? static_cast<void>(reference::Run(builder.request()))
               : static_cast<void>(PlanOutputs(builder.request()));
        ADD_FAILURE() << text << ": no error from " << (oracle ? "the oracle" : "heed");
      } catch (const Error& error) {
        EXPECT_STREQ(ErrorCodeName(error.code()), ErrorCodeName(code)) << error.what();
        EXPECT_THAT(error.what(), HasSubstr(text));
      }
    }
  };
  refused(ErrorCode::kRange, "tokens", [](ClassifierCase& c) { c.tokens[5] = kVocabulary; });
  refused(ErrorCode::kRange, "tokens", [](ClassifierCase& c) { c.tokens[5] = -1; });
  refused(ErrorCode::kShape, "w_class", [](ClassifierCase& c) {
    c.layer.tensors["w_class"].shape = {kDim, kClasses};
  });
  refused(ErrorCode::kShape, "position_table", [](ClassifierCase& c) {
    c.layer.tensors["position_table"] = {{2, kDim}, std::vector<float>(2 * kDim)};
  });
  refused(ErrorCode::kOption, "pool_query",
          [](ClassifierCase& c) { c.layer.params["pooling"] = std::string("attention"); });
  refused(ErrorCode::kOption, "pool_query", [](ClassifierCase& c) {
    c.layer.tensors["pool_query"] = {{kDim}, std::vector<float>(kDim)};
  });
}

}  // namespace
}  // namespace heed::testing
