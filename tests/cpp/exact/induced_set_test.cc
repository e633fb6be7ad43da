// Set Transformer blocks: against the oracle, their symmetries, and numbers from their definition.
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

class InducedSet : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(InducedSet);

struct SetCase {
  std::string block = "isab";
  int64_t batch = 2, len = 50, dim = 24, points = 7, heads = 3;
  std::vector<float> x = {};  // drawn when empty
  std::vector<int32_t> lengths = {};
  bool norm = true, optional_weights = true, projected = false;

  Values Run(bool oracle) const {
    const RequestBuilder builder = Build();
    return oracle ? RunOracle(builder.request()) : RunByName(builder.request());
  }

  RequestBuilder Build() const {
    const int64_t blocks = block == "isab" ? 2 : 1, matrices = projected ? 4 : 5;
    RequestBuilder builder("induced_set");
    builder.Floats("x", {batch, len, dim}, x.empty() ? NormalFloats(batch * len * dim, 1) : x)
        .Floats(
            "set_weights", {blocks, matrices, dim, dim},
            NormalFloats(blocks * matrices * dim * dim, 2, 1 / std::sqrt(static_cast<float>(dim))))
        .Param("set_block", block)
        .Param("num_heads", static_cast<double>(heads))
        .Param("set_norm", norm ? "layer" : "none");
    if (block != "sab") builder.Floats("inducing", {points, dim}, NormalFloats(points * dim, 3));
    if (projected) builder.Param("set_residual", "projected");
    if (!lengths.empty()) builder.Integers("key_lengths", {batch}, lengths);
    if (!optional_weights) return builder;
    builder.Floats("set_biases", {blocks, matrices, dim}, NormalFloats(blocks * matrices * dim, 4))
        .Floats("norm_weights", {blocks, 2, dim}, NormalFloats(blocks * 2 * dim, 5))
        .Floats("norm_biases", {blocks, 2, dim}, NormalFloats(blocks * 2 * dim, 6));
    return builder;
  }
};

void ExpectSetMatches(const SetCase& c) {
  const std::vector<double> expected = c.Run(true).at("output"), actual = c.Run(false).at("output");
  double size = 1;
  for (const double e : expected) {
    if (std::isfinite(e)) size = std::max(size, std::abs(e));
  }
  const std::vector<float> floats(actual.begin(), actual.end());
  ExpectWithin(floats, expected, std::vector<double>(expected.size(), kSetBlockMaxError * size),
               c.block);
}

TEST_P(InducedSet, MatchesReference) {
  for (const bool projected : {false, true}) {
    for (const char* block : {"isab", "pma", "sab"}) {
      SetCase c{.block = block, .projected = projected};
      ExpectSetMatches(c);
      c.optional_weights = false;
      ExpectSetMatches(c);
      c.norm = false;
      ExpectSetMatches(c);
      c.lengths = {50, 20};
      ExpectSetMatches(c);
      c.heads = 24;
      ExpectSetMatches(c);
    }
  }
  ExpectSetMatches({.batch = 1, .len = 1, .dim = 1, .points = 1, .heads = 1});
}

TEST_P(InducedSet, GivesTheNumbersOfItsDefinition) {
  // Weights of zero but for values and output (1): PMA adds the mean of the set to its seed; the
  // feed-forward network (2) adds twice the positive part.
  RequestBuilder builder("induced_set");
  builder.Floats("x", {1, 3, 1}, {1, 2, 6})
      .Floats("inducing", {2, 1}, {10, -5})
      .Floats("set_weights", {1, 5, 1, 1}, {0, 0, 1, 1, 2})
      .Param("set_block", "pma")
      .Param("set_norm", "none");
  ExpectAllNear(RunByName(builder.request()).at("output"), {39, -2}, 1e-5);
}

TEST_P(InducedSet, ProjectedResidualGivesTheNumbersOfItsDefinition) {
  // Seeds times 3 plus a half, and the mean of the set, as queries meet keys of 0; then twice the
  // positive part is added.
  RequestBuilder builder("induced_set");
  builder.Floats("x", {1, 3, 1}, {1, 2, 6})
      .Floats("inducing", {2, 1}, {10, -5})
      .Floats("set_weights", {1, 4, 1, 1}, {3, 0, 1, 2})
      .Floats("set_biases", {1, 4, 1}, {0.5f, 0, 0, 0})
      .Param("set_block", "pma")
      .Param("set_norm", "none")
      .Param("set_residual", "projected");
  ExpectAllNear(RunByName(builder.request()).at("output"), {100.5, -11.5}, 1e-4);
}

TEST_P(InducedSet, ProjectedResidualReducesToThatOfTheInputWithIdentities) {
  // Queries that are not projected, an output matrix that changes nothing, and the scale of
  // embed_dim.
  const int64_t dim = 8;
  std::vector<float> four = NormalFloats(4 * dim * dim, 2), five = four;
  for (int64_t n = 0; n < dim * dim; ++n) {
    four[static_cast<size_t>(n)] = five[static_cast<size_t>(n)] = n % (dim + 1) == 0 ? 1 : 0;
  }
  five.insert(five.begin() + 3 * dim * dim, four.begin(), four.begin() + dim * dim);
  const auto run = [&](const std::vector<float>& weights, const char* residual) {
    RequestBuilder builder("induced_set");
    builder.Floats("x", {2, 30, dim}, NormalFloats(2 * 30 * dim, 1))
        .Floats("set_weights", {1, static_cast<int64_t>(weights.size()) / dim / dim, dim, dim},
                weights)
        .Param("set_block", "sab")
        .Param("set_residual", residual)
        .Param("num_heads", 2.0);
    if (weights.size() == five.size()) builder.Param("scale", 1 / std::sqrt(8.0));
    return RunByName(builder.request()).at("output");
  };
  ExpectAllNear(run(four, "projected"), run(five, "input"), 2e-5);
}

TEST_P(InducedSet, PoolingReducesToAttentionPoolingWithoutProjections) {
  // Identity projections, seeds that are taken away again, no feed-forward network.
  RequestBuilder builder("induced_set"), pooling("attention_pooling");
  const std::vector<float> x = NormalFloats(2 * 30 * 4, 1), seeds = NormalFloats(3 * 4, 2);
  std::vector<float> weights(5 * 16);
  for (size_t m = 0; m < 4; ++m) {
    for (size_t d = 0; d < 4; ++d) weights[m * 16 + 5 * d] = 1;
  }
  builder.Floats("x", {2, 30, 4}, x)
      .Floats("inducing", {3, 4}, seeds)
      .Floats("set_weights", {1, 5, 4, 4}, weights)
      .Param("set_block", "pma")
      .Param("set_norm", "none");
  pooling.Floats("queries", {1, 3, 4}, seeds).Floats("k", {2, 1, 30, 4}, x);
  pooling.Floats("v", {2, 1, 30, 4}, x);
  std::vector<double> expected = RunByName(pooling.request()).at("output");
  for (size_t n = 0; n < expected.size(); ++n) expected[n] += seeds[n % 12];
  ExpectAllNear(RunByName(builder.request()).at("output"), expected, 1e-5);
}

TEST_P(InducedSet, PermutedSetsGivePermutedRows) {
  // Property 1 of the paper: ISAB and SAB are permutation equivariant, PMA is invariant.
  for (const char* block : {"isab", "pma", "sab"}) {
    SetCase c{.block = block, .batch = 1};
    c.x = NormalFloats(50 * 24, 1);
    const std::vector<double> straight = c.Run(false).at("output");
    std::vector<float> turned(c.x.size());
    const auto source = [](size_t i) { return (i * 7 + 3) % 50; };
    for (size_t n = 0; n < turned.size(); ++n) turned[n] = c.x[source(n / 24) * 24 + n % 24];
    c.x = turned;
    const std::vector<double> output = c.Run(false).at("output");
    for (size_t n = 0; n < output.size(); ++n) {
      const size_t from = c.block == "pma" ? n : source(n / 24) * 24 + n % 24;
      EXPECT_NEAR(output[n], straight[from], 2e-4) << block;
    }
  }
}

TEST_P(InducedSet, ElementsBeyondTheLengthChangeOnlyTheirOwnRows) {
  SetCase c{.lengths = {20, 0}};
  c.x = NormalFloats(2 * 50 * 24, 1);
  const std::vector<double> clean = c.Run(false).at("output");
  for (size_t row = 20; row < 50; ++row) c.x[row * 24 + 3] = kNan;
  const std::vector<double> output = c.Run(false).at("output");
  for (size_t n = 0; n < output.size(); ++n) {
    if (n / 24 >= 20 && n / 24 < 50) continue;
    EXPECT_EQ(output[n], clean[n]) << n;
  }
  ExpectSetMatches(c);
}

TEST_P(InducedSet, ThreadsChangeNoBit) {
  for (const char* block : {"isab", "pma"}) {
    for (const bool projected : {false, true}) {
      const SetCase c{.block = block, .len = 200, .projected = projected};
      ExpectSameBitsForAnyThreads(c.Build().request());
    }
  }
}

TEST_P(InducedSet, ProjectedResidualHasNoOutputMatrix) {
  RequestBuilder five = SetCase{}.Build(), four = SetCase{.projected = true}.Build();
  five.Param("set_residual", "projected");
  ExpectBothRefuse(five.request(), ErrorCode::kShape, "set_weights");
  Request of_input = four.request();
  std::erase_if(of_input.params, [](const auto& param) { return param.name == "set_residual"; });
  ExpectBothRefuse(of_input, ErrorCode::kShape, "set_weights");
  RequestBuilder word = SetCase{}.Build();
  word.Param("set_residual", "none");
  ExpectBothRefuse(word.request(), ErrorCode::kOption, "set_residual");
  SetBlockWeights weights;
  const std::vector<float> zeros(16);
  weights.attention.w_q = weights.attention.w_k = weights.attention.w_v =
      Contiguous(zeros.data(), 1, 2, 2, 4);
  weights.attention.w_o = Contiguous(zeros.data(), 1, 4, 2, 2);
  weights.w_ff = Contiguous(zeros.data(), 1, 1, 4, 4);
  const TensorView<const float> x = Contiguous(zeros.data(), 1, 1, 4, 4);
  std::vector<float> output(16);
  try {
    SetAttentionBlock(x, x, weights, {.attention = {}, .residual = SetResidual::kProjected},
                      Contiguous(output.data(), 1, 1, 4, 4));
    ADD_FAILURE() << "accepted w_o";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOption);
    EXPECT_NE(std::string(error.what()).find("w_o"), std::string::npos) << error.what();
  }
}

TEST_P(InducedSet, BadArgumentsAreRefused) {
  ExpectBothRefuse(SetCase{.heads = 5}.Build().request(), ErrorCode::kRange, "num_heads");
  SetCase sab{.block = "sab"};
  RequestBuilder extra = sab.Build();
  extra.Floats("inducing", {1, 24}, NormalFloats(24, 1));
  ExpectBothRefuse(extra.request(), ErrorCode::kOption, "inducing");
  RequestBuilder epsilon = sab.Build();
  epsilon.Param("epsilon", 0.0);
  ExpectBothRefuse(epsilon.request(), ErrorCode::kRange, "epsilon");
  RequestBuilder small("induced_set");
  small.Floats("x", {1, 1, 2}, {1, 1})
      .Floats("inducing", {1, 2}, {1, 1})
      .Floats("set_weights", {1, 5, 2, 2}, std::vector<float>(20));
  ExpectBothRefuse(small.request(), ErrorCode::kShape, "set_weights");
}

}  // namespace
}  // namespace heed::testing
