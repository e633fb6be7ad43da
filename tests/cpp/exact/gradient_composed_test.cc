// Gradients of compositions that pass the options of attention through, against central differences
// of the float64 oracle.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "backward_case.h"
#include "composed_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class ComposedGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(ComposedGradient);

// Every option that passes through, small enough for differences by every element. Some rows are
// empty.
std::vector<AttentionCase> SmallCases() {
  Random random(5);
  const auto sizes = [&](int64_t heads, int64_t kv_heads, int64_t q_len, int64_t kv_len) {
    return Sizes{2, heads, kv_heads, q_len, kv_len, 4, 3};
  };
  std::vector<AttentionCase> cases;
  cases.push_back(MakeCase(sizes(1, 1, 1, 1), 1));
  cases.push_back(MakeCase(sizes(4, 2, 3, 7), 2, Layout::kPadded));
  cases.back().bias = MakeBias({1, 4, 3, 7}, random, 0.3);
  cases.back().scalars.softcap = 3.0;
  cases.push_back(MakeCase(sizes(2, 2, 5, 5), 3, Layout::kBlhd));
  cases.back().scalars.causal = true;
  cases.back().alibi_slopes = AlibiSlopes(2);
  cases.push_back(MakeCase(sizes(2, 1, 4, 9), 4, Layout::kReversed));
  cases.back().scalars.window = Window{2, 1};
  cases.back().scalars.query_offset = QueryOffset::End();
  cases.back().key_lengths = {9, 0};
  cases.back().sinks = {0.5f, -1.0f};
  cases.push_back(MakeCase(sizes(3, 1, 4, 6), 6));
  cases.back().keep = MakeKeep({2, 1, 4, 6}, random, 0.2);
  return cases;
}

ComposedCase Gated(const AttentionCase& inner, bool per_head) {
  ComposedCase c{.id = "gated", .inner = inner, .extras = {}, .params = {}};
  const Sizes& s = inner.sizes;
  c.AddNormal("output_gate",
              {s.batch, per_head ? s.num_heads : 1, s.q_len, per_head ? int64_t{1} : s.head_dim_v});
  return c;
}

ComposedCase Hopfield(const AttentionCase& inner, double steps, double tolerance = 0) {
  ComposedCase c{.id = "hopfield", .inner = inner, .extras = {}, .params = {}};
  c.params = {{"steps", steps}, {"tolerance", tolerance}, {"scale", 0.3}};
  return c;
}

ComposedCase Differential(const AttentionCase& inner, bool plain) {
  ComposedCase c{.id = "differential", .inner = inner, .extras = {}, .params = {}};
  c.AddNormal("lambda", {plain ? 1 : inner.sizes.num_heads});
  if (plain) {
    c.params.push_back({"sub_norm", std::string("none")});
  } else {
    c.AddNormal("norm_weight", {inner.sizes.head_dim_v}, 5);
    c.params.push_back({"epsilon", 0.1});
  }
  return c;
}

ComposedCase Pooling(const AttentionCase& inner) {
  ComposedCase c{.id = "attention_pooling", .inner = inner, .extras = {}, .params = {}};
  const Sizes& s = inner.sizes;
  c.AddNormal("queries", {s.num_heads, s.q_len, s.head_dim});
  return c;
}

ComposedCase Talking(const AttentionCase& inner, bool scores, bool weights) {
  ComposedCase c{.id = "talking_heads", .inner = inner, .extras = {}, .params = {}};
  const int64_t heads = inner.sizes.num_heads;
  if (scores) c.AddNormal("mix_scores", {heads, heads}, 6);
  if (weights) c.AddNormal("mix_weights", {heads, heads}, 7);
  return c;
}

std::vector<ComposedCase> AllRows(const AttentionCase& inner) {
  return {Talking(inner, true, true),  Talking(inner, true, false),
          Talking(inner, false, true), Gated(inner, false),
          Gated(inner, true),          Hopfield(inner, 1),
          Hopfield(inner, 3),          Pooling(inner),
          Differential(inner, true),   Differential(inner, false)};
}

// With the lse where the row has one. Points into the case.
Request RequestOf(const ComposedCase& c) {
  Request request = c.request();
  if (c.id != "differential") request.params.push_back({"return_lse", true});
  if (c.id == "attention_pooling") {
    std::erase_if(request.inputs, [](const NamedTensor& input) { return input.name == "q"; });
  }
  return request;
}

TEST_P(ComposedGradient, MatchesDifferencesOfReference) {
  for (const AttentionCase& inner : SmallCases()) {
    for (const ComposedCase& c : AllRows(inner)) {
      ExpectElementsMatch(RequestOf(c), kComposedGradientMaxError, c.Describe());
    }
  }
}

TEST_P(ComposedGradient, MatchesAlongDirections) {
  for (const AttentionCase& inner : PassThroughCases()) {
    if (inner.sizes.kv_len == 1) continue;  // gradients are 0 but for rounding
    for (const ComposedCase& c : AllRows(inner)) {
      ExpectDirectionsMatch(RequestOf(c), kComposedGradientMaxError, c.Describe());
    }
  }
}

TEST_P(ComposedGradient, SumsOptionsOverCallsOfAttention) {
  AttentionCase inner = MakeCase({2, 2, 1, 4, 6, 4, 3}, 8);
  Random random(6);
  inner.scalars.relative_max_distance = 2;
  inner.AddTensor("relative_values", {5, 3}, random);
  inner.bias = MakeBias({1, 2, 4, 6}, random);
  inner.sinks = {0.3f, -0.2f};
  inner.scalars.query_offset = QueryOffset::At(1);
  for (const ComposedCase& c : {Hopfield(inner, 3), Differential(inner, false)}) {
    ExpectElementsMatch(RequestOf(c), kComposedGradientMaxError, c.Describe());
  }
}

TEST_P(ComposedGradient, NormalisersWithoutLse) {
  AttentionCase inner = MakeCase({1, 2, 1, 4, 6, 4, 3}, 9);
  for (ComposedCase c :
       {Gated(inner, true), Hopfield(inner, 2), Pooling(inner), Differential(inner, false)}) {
    c.params.push_back({"normalize", std::string("sigmoid")});
    Request request = RequestOf(c);
    std::erase_if(request.params, [](const NamedParam& p) { return p.name == "return_lse"; });
    ExpectElementsMatch(request, kComposedGradientMaxError, c.Describe());
  }
}

TEST_P(ComposedGradient, UserFunctions) {
  AttentionCase inner = MakeCase({1, 2, 1, 4, 6, 4, 3}, 15);
  inner.score_mod = "2 * tanh(score) - 0.1 * score * kvIndex";
  for (const ComposedCase& c : AllRows(inner)) {
    ExpectElementsMatch(RequestOf(c), kComposedGradientMaxError, "score_mod: " + c.Describe());
  }
  inner.prob_mod = "prob * prob + 0.5 * prob * (qIndex % 2)";
  for (const ComposedCase& c : AllRows(inner)) {
    if (c.id == "talking_heads") continue;  // takes none
    ExpectElementsMatch(RequestOf(c), kComposedGradientMaxError, "prob_mod: " + c.Describe());
  }
}

TEST_P(ComposedGradient, ContextualPositions) {
  AttentionCase inner = MakeCase({2, 2, 1, 4, 6, 4, 3}, 16);
  Random random(7);
  inner.scalars.normalize = Normalize::kCope;
  AddCopeTable(inner, 2, 4, random);
  inner.scalars.causal = true;
  inner.scalars.query_offset = QueryOffset::At(1);
  for (const ComposedCase& c :
       {Gated(inner, true), Hopfield(inner, 1), Hopfield(inner, 3), Pooling(inner)}) {
    ExpectElementsMatch(RequestOf(c), kComposedGradientMaxError, c.Describe());
  }
  inner.sizes.head_dim = 2;  // of each of the two maps
  AddCopeTable(inner, 1, 4, random);
  inner.sizes.head_dim = 4;
  const ComposedCase c = Differential(inner, false);
  ExpectElementsMatch(RequestOf(c), kComposedGradientMaxError, c.Describe());
}

// States of large scale settle at a pattern within a few updates; the others go on.
TEST_P(ComposedGradient, StatesAtRestPassTheirGradientOn) {
  const AttentionCase inner = MakeCase({1, 1, 1, 6, 5, 4, 3}, 10);
  ExpectElementsMatch(RequestOf(Hopfield(inner, 6, 0.05)), kComposedGradientMaxError, "tolerance");
}

TEST_P(ComposedGradient, SameBitsForAnyNumberOfThreads) {
  const AttentionCase inner = MakeCase({2, 4, 2, 150, 90, 8, 8}, 11);
  for (const ComposedCase& c : AllRows(inner)) {
    ExpectSameGradientsForAnyThreads(RequestOf(c), c.Describe());
  }
}

// Key 2 is hidden, query 1 sees nothing; both are NaN, and so is what arrives at query 1.
TEST_P(ComposedGradient, WhatIsHiddenReachesNothing) {
  AttentionCase inner = MakeCase({1, 1, 1, 3, 4, 4, 3}, 12);
  Random random(1);
  inner.keep = MakeKeep({1, 1, 3, 4}, random, 1);
  for (int64_t i = 0; i < 3; ++i) inner.keep(0, 0, i, 2) = 0;
  for (int64_t j = 0; j < 4; ++j) inner.keep(0, 0, 1, j) = 0;
  for (int64_t d = 0; d < 4; ++d) inner.k(0, 0, 2, d) = kNan;
  for (int64_t d = 0; d < 3; ++d) inner.v(0, 0, 2, d) = kNan;
  for (ComposedCase& c : AllRows(inner)) {
    if (c.id == "gated") c.extra("output_gate").values[1] = kNan;
    if (c.id == "gated" && c.extras[0].values.size() > 3) {
      std::fill_n(c.extra("output_gate").values.begin(), 9, 0.5f);
      std::fill_n(c.extra("output_gate").values.begin() + 3, 3, kNan);
    }
    const Request request = RequestOf(c);
    Backward backward(request);
    std::fill_n(backward.d_results.values(0).begin() + 3, 3, kNan);
    backward.Run(request);
    const Values gradients = backward.gradients.ByName();
    for (const auto& [name, values] : gradients) {
      for (const double x : values) EXPECT_TRUE(std::isfinite(x)) << name << ": " << c.Describe();
    }
    for (size_t d = 8; d < 12; ++d) EXPECT_EQ(gradients.at("k")[d], 0) << c.Describe();
  }
}

TEST_P(ComposedGradient, NanReachesTheRowThatItArrivesAt) {
  const AttentionCase inner = MakeCase({1, 1, 1, 3, 4, 4, 3}, 13);
  for (const ComposedCase& c :
       {Gated(inner, false), Hopfield(inner, 3), Differential(inner, true)}) {
    const Request request = RequestOf(c);
    Backward backward(request);
    backward.d_results.values(0)[4] = kNan;
    backward.Run(request);
    const std::vector<double> d_q = backward.gradients.ByName().at("q");
    for (size_t n = 0; n < d_q.size(); ++n) EXPECT_EQ(std::isnan(d_q[n]), n / 4 == 1) << c.id;
  }
}

TEST(ComposedGradientBoundary, RefusesWhatHasNoGradient) {
  using ::testing::StartsWith;
  const AttentionCase inner = MakeCase({1, 1, 1, 3, 4, 4, 3}, 14);
  const ComposedCase c = Gated(inner, true);
  Request request = RequestOf(c);
  request.params.push_back({"return_weights", true});
  EXPECT_THAT(BackwardRefusal(request), StartsWith("unsupported: return_weights"));
  request.params.back() = {"return_scores", std::string("raw")};
  EXPECT_THAT(BackwardRefusal(request), StartsWith("unsupported: return_scores"));
  request.params.pop_back();
  request.inputs[0].tensor.dtype = DType::kFloat16;
  EXPECT_THAT(BackwardRefusal(request), StartsWith("dtype: q has element type float16"));
}

}  // namespace
}  // namespace heed::testing
