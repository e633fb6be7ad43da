// The transformer block: the reference in all its forms, hand-computed numbers, and its limits.
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

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kBatch = 2, kLen = 37, kDim = 24, kHidden = 40;

class TransformerBlockLayer : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(TransformerBlockLayer);

LayerCase MakeBlock() {
  LayerCase c = {
      "transformer_block", {.batch = kBatch, .q_len = kLen, .kv_len = kLen}, {}, {}, {}, {}};
  Random random(1);
  const auto draw = [&](const std::string& name, const std::vector<int64_t>& shape, double size) {
    c.tensors[name] = DrawFloats(random, shape, size);
  };
  draw("x", {kBatch, kLen, kDim}, 1);
  draw("w_q", {4, 6, kDim}, 0.2);
  draw("w_k", {2, 6, kDim}, 0.2);
  draw("w_v", {2, 5, kDim}, 0.2);
  draw("w_o", {kDim, 4, 5}, 0.2);
  draw("w_up", {kHidden, kDim}, 0.2);
  draw("w_down", {kDim, kHidden}, 0.15);
  return c;
}

void AddOptionalWeights(LayerCase& c) {
  Random random(2);
  const std::pair<const char*, std::vector<int64_t>> optional[] = {
      {"b_q", {4, 6}},          {"b_k", {2, 6}},        {"b_v", {2, 5}},
      {"b_o", {kDim}},          {"b_up", {kHidden}},    {"b_down", {kDim}},
      {"norm1_weight", {kDim}}, {"norm1_bias", {kDim}}, {"norm2_weight", {kDim}},
      {"norm2_bias", {kDim}},   {"b_gate", {kHidden}}};
  for (const auto& [name, shape] : optional) c.tensors[name] = DrawFloats(random, shape, 1);
  c.tensors["w_gate"] = DrawFloats(random, {kHidden, kDim}, 0.2);
}

void ExpectBlockMatchesReference(const LayerCase& c) {
  const RequestBuilder builder = c.Build();
  const std::vector<double> expected = RunOracle(builder.request()).at("output");
  const std::vector<double> got = RunByName(builder.request()).at("output");
  double largest = 1;
  for (const double x : expected) {
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  }
  ExpectWithin(std::vector<float>(got.begin(), got.end()), expected,
               std::vector<double>(expected.size(), kTransformerBlockMaxError * largest), "block");
}

TEST_P(TransformerBlockLayer, MatchesReferenceInEveryForm) {
  for (const char* norm : {"layer", "rms"}) {
    for (const char* order : {"pre", "post"}) {
      for (const char* activation : {"gelu", "gelu_tanh", "silu", "relu"}) {
        LayerCase c = MakeBlock();
        c.params = {{"norm", std::string(norm)},
                    {"norm_order", std::string(order)},
                    {"activation", std::string(activation)},
                    {"causal", true}};
        ExpectBlockMatchesReference(c);
        AddOptionalWeights(c);
        c.key_lengths = {kLen, 9};
        c.params["epsilon"] = 0.01;
        ExpectBlockMatchesReference(c);
      }
    }
  }
}

// One row (1, 3), attention of zeros: its norm is (-1, 1), relu leaves (0, 1), twice that is added.
TEST_P(TransformerBlockLayer, GivesHandComputedNumbers) {
  RequestBuilder builder("transformer_block");
  builder.Floats("x", {1, 1, 2}, {1, 3})
      .Floats("w_q", {1, 1, 2}, {0, 0})
      .Floats("w_k", {1, 1, 2}, {0, 0})
      .Floats("w_v", {1, 1, 2}, {0, 0})
      .Floats("w_o", {2, 1, 1}, {0, 0})
      .Floats("w_up", {2, 2}, {1, 0, 0, 1})
      .Floats("w_down", {2, 2}, {2, 0, 0, 2})
      .Param("activation", "relu")
      .Param("epsilon", 1e-12);
  const std::vector<double> output = RunByName(builder.request()).at("output");
  EXPECT_NEAR(output[0], 1, 1e-6);
  EXPECT_NEAR(output[1], 5, 1e-6);
}

TEST_P(TransformerBlockLayer, ReducesToItsInputWithoutOutputWeights) {
  LayerCase c = MakeBlock();
  for (const char* name : {"w_o", "w_down"}) {
    std::ranges::fill(c.tensors[name].values, 0.0f);
  }
  const std::vector<double> output = RunByName(c.Build().request()).at("output");
  const std::vector<float>& x = c.tensors["x"].values;
  EXPECT_EQ(std::vector<float>(output.begin(), output.end()), x);
}

TEST_P(TransformerBlockLayer, EmptyRowTakesTheAttentionBiasAndGoesOn) {
  LayerCase c = MakeBlock();
  AddOptionalWeights(c);
  c.key_lengths = {0, kLen};
  ExpectBlockMatchesReference(c);
}

TEST_P(TransformerBlockLayer, NanReachesOnlyTheRowsThatSeeIt) {
  LayerCase c = MakeBlock();
  c.params["causal"] = true;
  const std::vector<double> clean = RunByName(c.Build().request()).at("output");
  c.tensors["x"].values[20 * kDim + 1] = kNan;
  const std::vector<double> spoilt = RunByName(c.Build().request()).at("output");
  for (size_t n = 0; n < clean.size(); ++n) {
    const size_t row = n / kDim;
    const bool lost = row >= 20 && row < kLen;
    EXPECT_EQ(std::isnan(spoilt[n]), lost) << row;
    if (!lost) {
      EXPECT_EQ(spoilt[n], clean[n]) << row;
    }
  }
}

TEST_P(TransformerBlockLayer, SameBitsForAnyThreadCount) {
  LayerCase c = MakeBlock();
  AddOptionalWeights(c);
  const RequestBuilder builder = c.Build();
  const auto run = [&](int threads) {
    std::vector<float> values(static_cast<size_t>(kBatch * kLen * kDim), kNan);
    const NamedTensor output = {"output", StateTensor(values, {kBatch, kLen, kDim})};
    heed::Run(builder.request(), std::span(&output, 1), MakeThreadPool(threads).get());
    return values;
  };
  const std::vector<float> one = run(1);
  for (const int threads : {2, 3, 7}) EXPECT_EQ(one, run(threads)) << threads;
}

TEST(TransformerBlockBoundary, RefusesWhatDoesNotFit) {
  const auto refused = [](ErrorCode code, const std::string& text, auto change) {
    LayerCase c = MakeBlock();
    change(c);
    const RequestBuilder builder = c.Build();
    for (const bool oracle : {false, true}) {
      try {
        oracle ? static_cast<void>(reference::Run(builder.request()))
               : static_cast<void>(PlanOutputs(builder.request()));
        ADD_FAILURE() << text << ": no error from " << (oracle ? "the oracle" : "heed");
      } catch (const Error& error) {
        EXPECT_STREQ(ErrorCodeName(error.code()), ErrorCodeName(code)) << error.what();
        if (!oracle) {
          EXPECT_THAT(error.what(), HasSubstr(text));
        }
      }
    }
  };
  refused(ErrorCode::kShape, "w_up", [](LayerCase& c) {
    c.tensors["w_up"].shape = {kDim, kHidden};
  });
  refused(ErrorCode::kShape, "w_down", [](LayerCase& c) {
    c.tensors["w_down"].shape = {kHidden, kDim};
  });
  refused(ErrorCode::kShape, "embed_dim", [](LayerCase& c) {
    c.tensors["w_o"] = {{7, 4, 5}, std::vector<float>(140)};
  });
  refused(ErrorCode::kOption, "b_gate", [](LayerCase& c) {
    c.tensors["b_gate"] = {{kHidden}, std::vector<float>(kHidden)};
  });
  refused(ErrorCode::kRange, "epsilon", [](LayerCase& c) { c.params["epsilon"] = 0.0; });
  refused(ErrorCode::kOption, "norm",
          [](LayerCase& c) { c.params["norm"] = std::string("batch"); });
}

}  // namespace
}  // namespace heed::testing
