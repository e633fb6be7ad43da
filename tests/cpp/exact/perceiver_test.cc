// The Perceiver's cross-attention block: against the oracle, its limits, numbers from its
// definition.
#include <algorithm>
#include <cmath>
#include <limits>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/set_attention.h"
#include "normal_input.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Perceiver : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Perceiver);

std::vector<float> Draw(const std::vector<int64_t>& shape, uint64_t seed, bool weight = false) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return NormalFloats(count, seed, weight ? 1 / std::sqrt(static_cast<float>(shape.back())) : 1);
}

struct PerceiverCase {
  int64_t batch = 2, latents = 9, len = 120, dim = 24, kdim = 17, heads = 3, head_dim = 8, ff = 48;
  bool own_latents = false;  // one array for each batch entry
  bool optional_weights = true;
  std::vector<float> input = {};  // drawn when empty
  std::vector<int32_t> lengths = {};

  RequestBuilder Build() const {
    RequestBuilder b("perceiver");
    const auto add = [&](const char* name, const std::vector<int64_t>& shape, bool weight) {
      b.Floats(name, shape, Draw(shape, static_cast<uint64_t>(name[0] * 7 + name[2]), weight));
    };
    add("latents", {own_latents ? batch : 1, latents, dim}, false);
    b.Floats("key", {batch, len, kdim}, input.empty() ? Draw({batch, len, kdim}, 5) : input);
    add("w_q", {heads, head_dim, dim}, true);
    add("w_k", {heads, head_dim, kdim}, true);
    add("w_v", {heads, head_dim, kdim}, true);
    add("w_o", {dim, heads, head_dim}, true);
    add("w_up", {ff, dim}, true);
    add("w_down", {dim, ff}, true);
    if (!lengths.empty()) b.Integers("key_lengths", {batch}, lengths);
    if (!optional_weights) return b;
    for (const char* name : {"b_q", "b_k", "b_v"}) add(name, {heads, head_dim}, false);
    add("b_o", {dim}, false);
    add("b_up", {ff}, false);
    for (const char* name :
         {"b_down", "norm1_weight", "norm1_bias", "norm2_weight", "norm2_bias"}) {
      add(name, {dim}, false);
    }
    add("key_norm_weight", {kdim}, false);
    add("key_norm_bias", {kdim}, false);
    return b;
  }
};

void ExpectPerceiverMatches(const Request& request) {
  const std::vector<double> expected = RunOracle(request).at("output");
  const std::vector<double> actual = RunByName(request).at("output");
  double size = 1;
  for (const double e : expected) {
    if (std::isfinite(e)) size = std::max(size, std::abs(e));
  }
  const std::vector<float> floats(actual.begin(), actual.end());
  ExpectWithin(floats, expected, std::vector<double>(expected.size(), kSetBlockMaxError * size),
               "perceiver");
}

TEST_P(Perceiver, MatchesReference) {
  for (const PerceiverCase& c :
       {PerceiverCase{}, PerceiverCase{.own_latents = true},
        PerceiverCase{.optional_weights = false}, PerceiverCase{.lengths = {0, 77}},
        PerceiverCase{1, 1, 1, 1, 1, 1, 1, 1}}) {
    ExpectPerceiverMatches(c.Build().request());
  }
  RequestBuilder scaled = PerceiverCase{}.Build();
  scaled.Param("scale", 0.1).Param("epsilon", 0.5);
  ExpectPerceiverMatches(scaled.request());
}

TEST_P(Perceiver, MatchesReferenceWithEveryActivationAndResidual) {
  for (const char* activation : {"gelu", "gelu_tanh", "silu", "relu"}) {
    for (const char* residual : {"add", "none"}) {
      RequestBuilder b = PerceiverCase{}.Build();
      b.Param("activation", std::string(activation)).Param("query_residual", std::string(residual));
      ExpectPerceiverMatches(b.request());
    }
  }
}

TEST_P(Perceiver, ExactGeluAndTheResidualAreTheDefaults) {
  RequestBuilder named = PerceiverCase{}.Build(), tanh = PerceiverCase{}.Build();
  named.Param("activation", std::string("gelu")).Param("query_residual", std::string("add"));
  tanh.Param("activation", std::string("gelu_tanh"));
  const std::vector<double> output = RunByName(PerceiverCase{}.Build().request()).at("output");
  EXPECT_EQ(RunByName(named.request()).at("output"), output);
  EXPECT_NE(RunByName(tanh.request()).at("output"), output);
}

TEST_P(Perceiver, GivesTheNumbersOfItsDefinition) {
  // The norm of the inputs (1, 3) and (3, 1) is (-1, 1) and (1, -1), up to epsilon; without queries
  // their mean is 0. Inputs of one kind alone give themselves. The network is switched off.
  const auto run = [](std::vector<float> input) {
    RequestBuilder b("perceiver");
    b.Floats("latents", {1, 1, 2}, {10, 20})
        .Floats("key", {1, 2, 2}, std::move(input))
        .Floats("w_q", {1, 2, 2}, {0, 0, 0, 0})
        .Floats("w_k", {1, 2, 2}, {1, 0, 0, 1})
        .Floats("w_v", {1, 2, 2}, {1, 0, 0, 1})
        .Floats("w_o", {2, 1, 2}, {1, 0, 0, 1})
        .Floats("w_up", {1, 2}, {0, 0})
        .Floats("w_down", {2, 1}, {1, 1})
        .Param("epsilon", 1e-12);
    return RunByName(b.request()).at("output");
  };
  ExpectAllNear(run({1, 3, 3, 1}), {10, 20}, 1e-5);
  ExpectAllNear(run({1, 3, 1, 3}), {9, 21}, 1e-5);
}

TEST_P(Perceiver, ReducesToItsLatentsWithoutProjections) {
  RequestBuilder b("perceiver");
  const std::vector<float> latents = Draw({9, 24}, 1);
  b.Floats("latents", {1, 9, 24}, latents)
      .Floats("key", {1, 30, 17}, Draw({30, 17}, 2))
      .Floats("w_q", {3, 8, 24}, Draw({3, 8, 24}, 3))
      .Floats("w_k", {3, 8, 17}, Draw({3, 8, 17}, 4))
      .Floats("w_v", {3, 8, 17}, Draw({3, 8, 17}, 5))
      .Floats("w_o", {24, 3, 8}, std::vector<float>(24 * 24))
      .Floats("w_up", {48, 24}, Draw({48, 24}, 6))
      .Floats("w_down", {24, 48}, std::vector<float>(24 * 48));
  const std::vector<double> output = RunByName(b.request()).at("output");
  for (size_t n = 0; n < output.size(); ++n) EXPECT_EQ(output[n], latents[n]);
}

TEST_P(Perceiver, ReducesToWhatItReadsWithoutResidualAndNetwork) {
  // The norms have weights of 0: every latent reads the bias of the inputs' norm.
  RequestBuilder b("perceiver");
  b.Floats("latents", {1, 1, 2}, {10, 20})
      .Floats("key", {1, 2, 2}, {1, 3, 5, -1})
      .Floats("w_q", {1, 2, 2}, {1, 0, 0, 1})
      .Floats("w_k", {1, 2, 2}, {1, 0, 0, 1})
      .Floats("w_v", {1, 2, 2}, {1, 0, 0, 1})
      .Floats("w_o", {2, 1, 2}, {2, 0, 0, 1})
      .Floats("w_up", {1, 2}, {1, 1})
      .Floats("w_down", {2, 1}, {0, 0})
      .Floats("key_norm_weight", {2}, {0, 0})
      .Floats("key_norm_bias", {2}, {3, -4})
      .Param("query_residual", std::string("none"));
  ExpectAllNear(RunByName(b.request()).at("output"), {6, -4}, 1e-5);
}

TEST_P(Perceiver, WhatIsMaskedCannotMatterAndEmptyRowsGoOn) {
  PerceiverCase c{.lengths = {0, 77}};
  c.input = Draw({2, 120, 17}, 5);
  const std::vector<double> clean = RunByName(c.Build().request()).at("output");
  for (const double x : clean) EXPECT_TRUE(std::isfinite(x));
  for (size_t j = 0; j < 120; ++j) c.input[j * 17] = kNan;
  for (size_t j = 77; j < 120; ++j) c.input[(120 + j) * 17 + 2] = kNan;
  EXPECT_EQ(RunByName(c.Build().request()).at("output"), clean);
}

TEST_P(Perceiver, ThreadsChangeNoBit) {
  ExpectSameBitsForAnyThreads(PerceiverCase{.len = 400}.Build().request());
}

TEST_P(Perceiver, BadArgumentsAreRefused) {
  RequestBuilder epsilon = PerceiverCase{}.Build();
  epsilon.Param("epsilon", -1.0);
  ExpectBothRefuse(epsilon.request(), ErrorCode::kRange, "epsilon");
  RequestBuilder activation = PerceiverCase{}.Build(), residual = PerceiverCase{}.Build();
  activation.Param("activation", std::string("tanh"));
  ExpectBothRefuse(activation.request(), ErrorCode::kOption, "activation");
  residual.Param("query_residual", std::string("projected"));
  ExpectBothRefuse(residual.request(), ErrorCode::kOption, "query_residual");
  RequestBuilder narrow("perceiver");
  narrow.Floats("latents", {1, 1, 2}, {1, 1})
      .Floats("key", {1, 1, 1}, {1})
      .Floats("w_q", {1, 1, 2}, {1, 1})
      .Floats("w_k", {1, 1, 1}, {1})
      .Floats("w_v", {1, 1, 1}, {1})
      .Floats("w_o", {2, 1, 1}, {1, 1})
      .Floats("w_up", {1, 3}, {1, 1, 1})
      .Floats("w_down", {2, 1}, {1, 1});
  ExpectBothRefuse(narrow.request(), ErrorCode::kShape, "w_up");
}

}  // namespace
}  // namespace heed::testing
