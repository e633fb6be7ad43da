// Gradients of induced sets and of the Perceiver against central differences of the float64 oracle.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "backward_case.h"
#include "gtest/gtest.h"
#include "normal_input.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class SetGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(SetGradient);

struct SetSizes {
  int64_t batch, len, points, heads, head_dim;
  int64_t dim() const { return heads * head_dim; }
};

// Weights keep the size of what they are multiplied with.
float Keeping(int64_t dim) { return 1 / std::sqrt(static_cast<float>(dim)); }

RequestBuilder InducedSet(const SetSizes& s, const std::string& block, bool all,
                          const std::string& residual = "input") {
  const int64_t blocks = block == "isab" ? 2 : 1, dim = s.dim();
  const int64_t matrices = residual == "input" ? 5 : 4;
  RequestBuilder builder("induced_set");
  AddNormal(builder, "x", {s.batch, s.len, dim}, 1);
  AddNormal(builder, "set_weights", {blocks, matrices, dim, dim}, 2, Keeping(dim));
  builder.Param("set_block", block).Param("set_residual", residual);
  builder.Param("num_heads", static_cast<double>(s.heads));
  if (block != "sab") AddNormal(builder, "inducing", {s.points, dim}, 3);
  if (!all) {
    builder.Param("set_norm", std::string("none"));
    return builder;
  }
  AddNormal(builder, "set_biases", {blocks, matrices, dim}, 4);
  AddNormal(builder, "norm_weights", {blocks, 2, dim}, 5);
  AddNormal(builder, "norm_biases", {blocks, 2, dim}, 6);
  builder.Param("epsilon", 0.1);
  return builder;
}

// The input has another width than the latents.
RequestBuilder Perceiver(const SetSizes& s, bool all) {
  const int64_t dim = s.dim(), kdim = dim + 1, ff = 2 * dim;
  RequestBuilder builder("perceiver");
  AddNormal(builder, "latents", {all ? s.batch : 1, s.points, dim}, 1);
  AddNormal(builder, "key", {s.batch, s.len, kdim}, 2);
  AddNormal(builder, "w_q", {s.heads, s.head_dim, dim}, 3, Keeping(dim));
  AddNormal(builder, "w_k", {s.heads, s.head_dim, kdim}, 4, Keeping(kdim));
  AddNormal(builder, "w_v", {s.heads, s.head_dim, kdim}, 5, Keeping(kdim));
  AddNormal(builder, "w_o", {dim, s.heads, s.head_dim}, 6, Keeping(dim));
  AddNormal(builder, "w_up", {ff, dim}, 7, Keeping(dim));
  AddNormal(builder, "w_down", {dim, ff}, 8, Keeping(ff));
  builder.Param("epsilon", 0.1);
  if (!all) return builder;
  uint64_t seed = 9;
  for (const char* name : {"b_q", "b_k", "b_v"}) {
    AddNormal(builder, name, {s.heads, s.head_dim}, seed++);
  }
  for (const char* name :
       {"b_o", "b_down", "norm1_weight", "norm1_bias", "norm2_weight", "norm2_bias"}) {
    AddNormal(builder, name, {dim}, seed++);
  }
  AddNormal(builder, "b_up", {ff}, seed++);
  AddNormal(builder, "key_norm_weight", {kdim}, seed++);
  AddNormal(builder, "key_norm_bias", {kdim}, seed++);
  AddNormal(builder, "sinks", {s.heads}, seed++);
  AddNormal(builder, "bias", {s.points, s.len}, seed++);
  builder.Param("softcap", 5.0);
  return builder;
}

const char* const kBlocks[] = {"isab", "pma", "sab"};

TEST_P(SetGradient, MatchesDifferencesOfReference) {
  const SetSizes s = {2, 5, 3, 2, 3};
  for (const bool all : {false, true}) {
    for (const char* block : kBlocks) {
      ExpectElementsMatch(InducedSet(s, block, all).request(), kComposedGradientMaxError, block);
    }
    ExpectElementsMatch(Perceiver(s, all).request(), kComposedGradientMaxError, "perceiver");
  }
}

TEST_P(SetGradient, ProjectedResidualsMatchDifferencesOfReference) {
  const SetSizes s = {2, 5, 3, 2, 3};
  for (const bool all : {false, true}) {
    for (const char* block : kBlocks) {
      ExpectElementsMatch(InducedSet(s, block, all, "projected").request(),
                          kComposedGradientMaxError, std::string(block) + ", projected");
    }
  }
}

TEST_P(SetGradient, ActivationsAndResidualsOfThePerceiverMatchDifferencesOfReference) {
  for (const char* activation : {"gelu_tanh", "silu"}) {
    for (const char* residual : {"add", "none"}) {
      RequestBuilder builder = Perceiver({2, 5, 3, 2, 3}, true);
      builder.Param("activation", std::string(activation))
          .Param("query_residual", std::string(residual));
      ExpectElementsMatch(builder.request(), kComposedGradientMaxError, activation);
    }
  }
}

// Differences cross kinks of relu here and there in longer sets: only the Perceiver has none.
TEST_P(SetGradient, MatchesAlongDirections) {
  for (const bool all : {false, true}) {
    ExpectDirectionsMatch(Perceiver({2, 90, 7, 3, 8}, all).request(), kComposedGradientMaxError,
                          "perceiver");
  }
}

TEST_P(SetGradient, SameBitsForAnyNumberOfThreads) {
  const SetSizes s = {2, 90, 7, 3, 8};
  for (const char* block : kBlocks) {
    ExpectSameGradientsForAnyThreads(InducedSet(s, block, true).request(), block);
    ExpectSameGradientsForAnyThreads(InducedSet(s, block, true, "projected").request(), block);
  }
  ExpectSameGradientsForAnyThreads(Perceiver(s, true).request(), "perceiver");
}

// Rows of the input beyond its length are NaN.
TEST_P(SetGradient, WhatIsBeyondTheLengthReachesNothing) {
  const SetSizes s = {2, 4, 3, 2, 2};
  for (const bool perceiver : {false, true}) {
    RequestBuilder builder = perceiver ? Perceiver(s, true) : InducedSet(s, "pma", true);
    builder.Integers("key_lengths", {2}, {3, 2});
    const char* name = perceiver ? "key" : "x";
    Request request = builder.request();
    const auto input = std::ranges::find(request.inputs, name, &NamedTensor::name);
    const int64_t dim = input->tensor.shape[2];
    float* last = static_cast<float*>(input->tensor.data) + 7 * dim;
    ExpectElementsMatch(request, kComposedGradientMaxError, name);
    std::fill_n(last, dim, kNan);
    Backward backward(request);
    for (const auto& [of, values] : backward.gradients.ByName()) {
      for (const double x : values) EXPECT_TRUE(std::isfinite(x)) << of;
    }
    const std::vector<double> gradient = backward.gradients.ByName().at(name);
    for (int64_t d = 0; d < dim; ++d) EXPECT_EQ(gradient[static_cast<size_t>(7 * dim + d)], 0);
  }
}

}  // namespace
}  // namespace heed::testing
