// Gradients by name: every row of the registry, against the oracle.
#include <string>

#include "gmock/gmock.h"
#include "gradient_oracle.h"
#include "gtest/gtest.h"
#include "heed/gradient.h"
#include "heed/registry.h"
#include "random_request.h"
#include "request_builder.h"
#include "request_tensors.h"

namespace heed::testing {
namespace {

double BoundOf(const Mechanism& row) {
  // Of the exact family, but calls of attention with more around them.
  for (const char* id :
       {"attention_free", "attention_pooling", "differential", "external", "gated", "graph",
        "hopfield", "induced_set", "perceiver", "synthesizer", "talking_heads"}) {
    if (row.id == id) return kComposedGradientMaxError;
  }
  if (row.family == "exact" || row.family == "selective") return kGradientMaxError;
  if (row.family == "low_rank") return kLowRankGradientMaxError;
  if (row.family == "layer") return kLayerGradientMaxError;
  if (row.family == "position") return kPositionGradientMaxError;
  return kRecurrentGradientMaxError;
}

// Gradients of all inputs along a random direction each, by RunBackward and by the oracle.
void ExpectGradientsMatch(const Request& request, const std::string& what) {
  const BackwardPlan plan = PlanBackward(request);
  Tensors results(plan.results), d_results(plan.results), gradients(plan.gradients);
  Random random(3);
  d_results.Draw(random);
  RunForward(request, results.named());
  RunBackward(request, results.named(), d_results.named(), gradients.named());
  Request asked = request;
  Values cotangents = d_results.ByName();
  const std::string params(FindMechanism(request.id)->params);
  if (Lists(params, "return_lse")) {
    if (cotangents.count("lse") > 0) asked.params.push_back({"return_lse", true});
  } else if (request.id != "flash" && cotangents.count("lse") > 0) {
    FAIL() << request.id << " cannot return its lse";
  }
  GradientOracle oracle(asked, cotangents);
  const double bound = BoundOf(*FindMechanism(request.id));
  for (const auto& [name, gradient] : gradients.ByName()) {
    ExpectAlong(oracle, name, gradient, bound, random, what);
  }
}

// Scores of rows that choose are drawn such that some are equal, and a choice between them has no
// derivative: makes all differ.
void BreakTies(DrawnRequest& drawn, uint64_t seed) {
  if (drawn.id != "hard" && drawn.id != "top_k") return;
  Random random(seed);
  for (const char* name : {"q", "k"}) {
    for (double& x : drawn.inputs.at(name).values) x = static_cast<double>(random.Normal());
    drawn.inputs.at(name).Pack();
  }
}

// Where every cluster has a single key, gradients of scores are 0 but for rounding, of many
// clusters; a softmax over one key, or over keys that are all alike, is constant. Differences do
// not show such gradients.
bool IsConstant(const Mechanism& row, const DrawnRequest& drawn) {
  const auto extent = [&](const char* symbol) {
    const auto found = drawn.extents.find(symbol);
    return found == drawn.extents.end() ? int64_t{100} : found->second;
  };
  if (row.id == "routing") return extent("kv_len") < 4;
  const bool projects = row.family == "layer" || row.id == "perceiver";
  return projects && (extent("kv_len") == 1 || extent("vocabulary") == 1);
}

DrawnRequest DrawDifferentiable(const Mechanism& row, uint64_t seed) {
  while (IsConstant(row, DrawRequest(row, Draw::kLeast, seed))) seed += 3;
  DrawnRequest drawn = DrawRequest(row, Draw::kLeast, seed);
  if (row.id == "routing") drawn.params["num_clusters"] = 2.0;
  BreakTies(drawn, seed);
  return drawn;
}

TEST(GradientRequest, EveryRowHasAGradientThatMatchesTheReference) {
  for (const Mechanism& row : Mechanisms()) {
    EXPECT_TRUE(Lists(row.capabilities, "gradient")) << row.id;
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const DrawnRequest drawn = DrawDifferentiable(row, seed);
      ExpectGradientsMatch(drawn.request(), drawn.Describe());
    }
  }
}

RequestBuilder Small() {
  RequestBuilder builder("attention");
  builder.Floats("q", {1, 2, 2, 1}, {0.5f, -1, 2, 1})
      .Floats("k", {1, 1, 3, 1}, {1, 0.25f, -1})
      .Floats("v", {1, 1, 3, 1}, {3, -2, 1});
  return builder;
}

TEST(GradientRequest, EveryInputWithAGradientIsPlanned) {
  RequestBuilder builder = Small();
  builder.Floats("bias", {2, 3}, {0, 1, 2, 3, 4, 5})
      .Floats("alibi_slopes", {2}, {0.5f, 0.25f})
      .Floats("sinks", {2}, {0, 1})
      .Floats("temperature", {2}, {0.5f, 2})
      .Param("score", "cosine")
      .Param("query_offset", 0.0);
  std::vector<std::string> names;
  for (const OutputSpec& spec : PlanBackward(builder.request()).gradients) {
    names.push_back(spec.name);
  }
  EXPECT_THAT(
      names, ::testing::ElementsAre("q", "k", "v", "bias", "alibi_slopes", "sinks", "temperature"));
  ExpectGradientsMatch(builder.request(), "cosine");
  RequestBuilder widths = Small();
  widths.Floats("width", {1}, {0.7f}).Param("score", "squared_distance");
  ExpectGradientsMatch(widths.request(), "width");
}

TEST(GradientRequest, CapturedTensorsAreConstants) {
  RequestBuilder builder = Small();
  builder.Floats("captured.slope", {2}, {0.5f, -0.25f})
      .Param("score_mod", "tanh(score * slope[h]) - slope[h] * kvIndex");
  std::vector<std::string> names;
  for (const OutputSpec& spec : PlanBackward(builder.request()).gradients) {
    names.push_back(spec.name);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("q", "k", "v"));
  ExpectGradientsMatch(builder.request(), "captured");
}

TEST(GradientRequest, WhatHasNoGradientIsRefusedByName) {
  const auto expect = [](RequestBuilder builder, const std::string& message) {
    try {
      PlanBackward(builder.request());
      ADD_FAILURE() << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_THAT(error.what(), ::testing::HasSubstr(message));
    }
  };
  expect(Small().Param("return_weights", true), "return_weights");
}

TEST(GradientRequest, AListWithoutDataIsRefusedBeforeItIsRead) {
  for (const auto& [id, list] :
       {std::pair{"cosine", "temperature"}, {"retention", "head_log_decay"}}) {
    const DrawnRequest draw = DrawRequest(*FindMechanism(id), Draw::kLeast, 1);
    Request request = draw.request();
    std::erase_if(request.inputs, [&](const NamedTensor& input) { return input.name == list; });
    request.inputs.push_back({list, ContiguousTensor(DType::kFloat32, nullptr, {{1}})});
    try {
      PlanBackward(request);
      ADD_FAILURE() << id;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOption) << id;
      EXPECT_THAT(error.what(), ::testing::HasSubstr(std::string(list) + " is missing")) << id;
    }
  }
}

TEST(GradientRequest, TensorsThatAreNotPlannedAreRefused) {
  const RequestBuilder builder = Small();
  const Request& request = builder.request();
  const BackwardPlan plan = PlanBackward(request);
  Tensors results(plan.results), d_results(plan.results), gradients(plan.gradients);
  Random random(1);
  d_results.Draw(random);
  RunForward(request, results.named());
  const auto refusal = [&](std::span<const NamedTensor> from, std::span<const NamedTensor> d,
                           std::span<const NamedTensor> to) -> std::string {
    try {
      RunBackward(request, from, d, to);
    } catch (const Error& error) {
      return std::string(ErrorCodeName(error.code())) + ": " + error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(results.named(), d_results.named(), gradients.named()), "");
  EXPECT_EQ(refusal(results.named(), d_results.named().first(1), gradients.named().first(1)), "");
  EXPECT_THAT(refusal(results.named().first(1), d_results.named(), gradients.named()),
              ::testing::HasSubstr("option: result \"lse\" is missing"));
  EXPECT_THAT(refusal(results.named(), d_results.named().last(1), gradients.named()),
              ::testing::HasSubstr("option: the gradient of result \"output\" is missing"));
  std::vector<NamedTensor> wrong(gradients.named().begin(), gradients.named().end());
  wrong[0].tensor.shape[2] = 5;
  EXPECT_THAT(refusal(results.named(), d_results.named(), wrong),
              ::testing::HasSubstr("shape: gradient of input \"q\""));
  wrong[0].name = "keep";
  EXPECT_THAT(refusal(results.named(), d_results.named(), wrong),
              ::testing::HasSubstr("option: gradient of input \"keep\""));
}

}  // namespace
}  // namespace heed::testing
