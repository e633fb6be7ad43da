// AttentionBackward() against central differences of the float64 oracle.
#include "heed/gradient.h"

#include <bit>
#include <cmath>
#include <limits>

#include "attention_case.h"
#include "gmock/gmock.h"
#include "gradient_case.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Gradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Gradient);

TEST_P(Gradient, MatchesDifferencesOfReference) { ExpectGradientsMatch(MakeCase(kGradientSizes)); }

TEST_P(Gradient, MatchesForOtherSizes) {
  for (const int64_t len : {1, 3, 17}) {
    for (const int64_t dim : {1, 8, 13}) {
      ExpectGradientsMatch(MakeCase({.num_heads = 3,
                                     .num_kv_heads = 1,
                                     .q_len = len,
                                     .kv_len = 20 - len,
                                     .head_dim = dim,
                                     .head_dim_v = 17 - dim},
                                    static_cast<uint64_t>(len * 100 + dim)));
    }
  }
}

TEST_P(Gradient, MatchesAlongRandomDirectionsForLongerSequences) {
  ExpectDirectionsMatch(MakeCase({.num_heads = 2,
                                  .num_kv_heads = 1,
                                  .q_len = 130,
                                  .kv_len = 300,
                                  .head_dim = 40,
                                  .head_dim_v = 33}));
  // Two parts, whose sums are added.
  ExpectDirectionsMatch(MakeCase({.num_heads = 1,
                                  .num_kv_heads = 1,
                                  .q_len = 1100,
                                  .kv_len = 65,
                                  .head_dim = 13,
                                  .head_dim_v = 21}),
                        1);
}

TEST_P(Gradient, MatchesForEveryKeepRule) {
  Random random(3);
  const auto expect = [&](auto&& change) {
    AttentionCase c = MakeCase(kGradientSizes);
    change(c);
    ExpectGradientsMatch(c);
  };
  expect([](AttentionCase& c) {
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::End();
  });
  expect([](AttentionCase& c) {
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::At(-2);  // two empty rows
  });
  expect([](AttentionCase& c) {
    c.scalars.window = Window{1, 2};
    c.scalars.query_offset = QueryOffset::At(1);
  });
  expect([](AttentionCase& c) { c.key_lengths = {4, 0}; });
  expect([&](AttentionCase& c) { c.keep = MakeKeep({1, 4, 5, 7}, random, 0.5); });
  expect([](AttentionCase& c) {
    c.query_documents = {0, 0, 1, -1, 1};
    c.key_documents = {0, 1, 1, 0, 1, -1, 0};
  });
  expect([&](AttentionCase& c) {
    c.lists.q_block = 2;
    c.lists.kv_block = 3;
    c.lists.block_keep = MakeKeep({1, 1, 3, 3}, random, 0.6);
  });
}

TEST_P(Gradient, MatchesForMasksOfLongerSequences) {
  const Sizes sizes = {.num_heads = 2,
                       .num_kv_heads = 1,
                       .q_len = 150,
                       .kv_len = 333,
                       .head_dim = 8,
                       .head_dim_v = 8};
  AttentionCase c = MakeCase(sizes);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(100);
  ExpectDirectionsMatch(c, 1);
  c = MakeCase(sizes);
  c.scalars.window = Window{40, 9};
  c.scalars.query_offset = QueryOffset::At(70);
  ExpectDirectionsMatch(c, 1);
  c = MakeCase(sizes);
  Random random(4);
  c.lists.q_block = c.lists.kv_block = 32;
  c.lists.block_keep = MakeKeep({1, 1, 5, 11}, random, 0.3);
  ExpectDirectionsMatch(c, 1);
}

TEST_P(Gradient, MatchesForEveryModifier) {
  Random random(5);
  AttentionCase c = MakeCase(kGradientSizes);
  c.scalars.softcap = 1.5;
  ExpectGradientsMatch(c);
  c.scalars.scale = -0.7;
  c.alibi_slopes = {0.5f, 0.25f, 0.125f, -0.3f};
  c.scalars.query_offset = QueryOffset::At(1);
  c.sinks = {0.3f, -1.0f, 2.0f, -kInf};
  c.bias = MakeBias({2, 4, 5, 7}, random, 0.2);
  ExpectGradientsMatch(c);
  c.scalars.dropout = {.p = 0.4, .seed = 9};
  ExpectGradientsMatch(c);
}

TEST_P(Gradient, MatchesForBiasesByDistance) {
  Random random(7);
  for (const int64_t heads : {1, 4}) {
    for (const int64_t reach : {0, 2, 20}) {
      AttentionCase c = MakeCase(kGradientSizes);
      c.scalars.query_offset = QueryOffset::At(1);
      c.AddTensor("distance_bias", {heads, 2 * reach + 1}, random);
      if (reach == 2) c.tensors["distance_bias"].buffer(0, 0, 0, 1) = -kInf;
      if (heads == 1) c.scalars.softcap = 2;
      ExpectGradientsMatch(c);
      c.scalars.bucket_direction = heads == 1 ? T5Direction::kCausal : T5Direction::kBidirectional;
      c.scalars.bucket_max_distance = 6;
      c.AddTensor("bucket_bias", {heads == 1 ? 3 : 6, 4}, random);
      ExpectGradientsMatch(c);
    }
  }
  // Several tiles, parts and tables that the sequences leave.
  AttentionCase c = MakeCase({.batch = 1,
                              .num_heads = 2,
                              .num_kv_heads = 1,
                              .q_len = 700,
                              .kv_len = 300,
                              .head_dim = 5,
                              .head_dim_v = 4});
  c.scalars.query_offset = QueryOffset::At(-200);
  c.AddTensor("distance_bias", {2, 61}, random);
  c.AddTensor("bucket_bias", {16, 2}, random);
  ExpectDirectionsMatch(c, 1);
}

AttentionCase MakeGated(const Sizes& sizes, int64_t batch, int64_t heads) {
  AttentionCase c = MakeCase(sizes);
  Random random(8);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::End();
  c.AddTensor("log_gates", {batch, heads, sizes.kv_len}, random, 0.3);
  c.tensors["log_gates"].buffer.ForEach(
      [](int64_t, int64_t, int64_t, int64_t, float& x) { x = -1e-3f - std::abs(x); });
  return c;
}

TEST_P(Gradient, MatchesForForgetGates) {
  for (const int64_t batch : {1, 2}) {
    AttentionCase c = MakeGated(kGradientSizes, batch, batch == 1 ? 1 : 4);
    ExpectGradientsMatch(c);
    c.tensors["log_gates"].buffer(0, 0, 0, 4) = -kInf;
    c.key_lengths = {6, 3};
    ExpectGradientsMatch(c);
    c.scalars.window = Window{.left = 1, .right = {}};
    c.sinks = {0.3f, -1.0f, 2.0f, -kInf};
    ExpectGradientsMatch(c);
  }
  AttentionCase c = MakeGated({.batch = 1,
                               .num_heads = 2,
                               .num_kv_heads = 1,
                               .q_len = 600,
                               .kv_len = 700,
                               .head_dim = 5,
                               .head_dim_v = 4},
                              1, 2);
  ExpectDirectionsMatch(c, 1);
  // Gates count where their key does not.
  Random random(9);
  c.lists.q_block = c.lists.kv_block = 32;
  c.lists.block_keep = MakeKeep({1, 1, 19, 22}, random, 0.2);
  ExpectDirectionsMatch(c, 1);
}

TEST_P(Gradient, NanReachesTheGatesBetweenItAndItsKeysOnly) {
  AttentionCase c = MakeGated({.batch = 1,
                               .num_heads = 1,
                               .num_kv_heads = 1,
                               .q_len = 9,
                               .kv_len = 9,
                               .head_dim = 2,
                               .head_dim_v = 2},
                              1, 1);
  c.scalars.window = Window{.left = 2, .right = {}};
  Cotangents cotangents = MakeCotangents(c);
  cotangents.output(0, 0, 6, 0) = kNan;  // sees keys 4, 5, 6
  const std::vector<double> gates = RunBackward(c, cotangents).at("log_gates");
  for (size_t l = 0; l < 9; ++l) EXPECT_EQ(std::isnan(gates[l]), l == 5 || l == 6) << l;
}

TEST_P(Gradient, SumsABiasOverTheExtentsThatBroadcast) {
  Random random(6);
  for (const Extents shape :
       {Extents{1, 4, 5, 7}, Extents{2, 1, 5, 7}, Extents{2, 4, 1, 7}, Extents{2, 4, 5, 1},
        Extents{1, 1, 5, 7}, Extents{1, 1, 1, 7}, Extents{1, 1, 1, 1}}) {
    AttentionCase c = MakeCase(kGradientSizes);
    c.bias = MakeBias(shape, random);
    c.scalars.softcap = 3.0;
    ExpectGradientsMatch(c);
  }
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 5,
                              .num_kv_heads = 1,
                              .q_len = 90,
                              .kv_len = 270,
                              .head_dim = 4,
                              .head_dim_v = 4});
  c.bias = MakeBias({1, 1, 90, 270}, random);
  ExpectDirectionsMatch(c, 1);
}

TEST_P(Gradient, MatchesForEveryNormaliser) {
  for (const Normalize normalize : {Normalize::kSoftmax1, Normalize::kSigmoid, Normalize::kRelu,
                                    Normalize::kReluSquared, Normalize::kAverage}) {
    AttentionCase c = MakeCase(kGradientSizes);
    c.scalars.normalize = normalize;
    ExpectGradientsMatch(c);
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::At(1);
    c.scalars.dropout = {.p = 0.3, .seed = 2};
    ExpectGradientsMatch(c);
    Random random(8);
    c.bias = MakeBias({2, 4, 5, 7}, random, 0.2);
    c.keep = MakeKeep({1, 1, 5, 7}, random, 0.7);
    if (normalize != Normalize::kAverage) ExpectGradientsMatch(c);
  }
}

TEST_P(Gradient, MatchesForDistances) {
  AttentionCase c = MakeCase(kGradientSizes);
  c.scalars.score = Score::kSquaredDistance;
  ExpectGradientsMatch(c);
  c.width = {1.3f, 0.7f, 2.0f};
  ExpectGradientsMatch(c);
  c.width = {0.8f};
  c.scalars.normalize = Normalize::kKernelSum;
  c.key_lengths = {6, 0};
  ExpectGradientsMatch(c);
  c = MakeCase(kGradientSizes);
  c.scalars.score = Score::kSquaredDistance;
  c.scalars.normalize = Normalize::kSigmoid;
  c.width = {1.1f};
  ExpectGradientsMatch(c);
}

TEST_P(Gradient, MatchesForCosines) {
  Random random(4);
  AttentionCase c = MakeCase(kGradientSizes);
  c.scalars.score = Score::kCosine;
  ExpectGradientsMatch(c);
  c.scalars.scale = 3.0;
  c.tensors["temperature"].rank = 1;
  c.tensors["temperature"].buffer = Buffer<float>({1, 1, 1, 4}, Layout::kDense, 0.0f);
  for (int64_t h = 0; h < 4; ++h) {
    c.tensors["temperature"].buffer(0, 0, 0, h) = 0.3f * static_cast<float>(h + 1);
  }
  c.scalars.softcap = 4.0;
  ExpectGradientsMatch(c);
  c.scalars.min_temperature = 0.5;  // head 0 is below it
  ExpectGradientsMatch(c);
  c.tensors["temperature"].buffer = Buffer<float>({1, 1, 1, 1}, Layout::kDense, 0.6f);
  ExpectGradientsMatch(c);
}

TEST_P(Gradient, MatchesForBilinearScores) {
  Random random(4);
  for (const int64_t heads : {1, 4}) {
    AttentionCase c = MakeCase(kGradientSizes);
    c.scalars.score = Score::kBilinear;
    c.k = MakeCase({.batch = 2, .num_heads = 2, .q_len = 1, .kv_len = 7, .head_dim = 6}).k;
    c.AddTensor("score_matrix", {heads, 3, 6}, random, 0.5);
    ExpectGradientsMatch(c);
  }
}

TEST_P(Gradient, AveragesPassNothingToScores) {
  AttentionCase c = MakeCase(kGradientSizes);
  c.scalars.normalize = Normalize::kAverage;
  c.q(0, 0, 0, 0) = kNan;
  const Values gradients = RunBackward(c, MakeCotangents(c));
  EXPECT_THAT(gradients.at("q"), ::testing::Each(0.0));
  EXPECT_THAT(gradients.at("k"), ::testing::Each(0.0));
}

TEST_P(Gradient, MatchesForLargeLogits) {
  AttentionCase c = MakeCase(kGradientSizes);
  c.scalars.scale = 30;
  ExpectGradientsMatch(c, 300);
}

TEST_P(Gradient, TakesEveryLayout) {
  for (const Layout layout : {Layout::kBlhd, Layout::kPadded, Layout::kReversed}) {
    AttentionCase c = MakeCase(kGradientSizes, 1, layout);
    c.output_layout = layout;
    const Cotangents cotangents = MakeCotangents(c, 7, layout);
    const AttentionCase dense = MakeCase(kGradientSizes);
    EXPECT_EQ(RunBackward(c, cotangents), RunBackward(dense, MakeCotangents(dense)));
  }
}

TEST_P(Gradient, ThreadsChangeNoBit) {
  AttentionCase c = MakeCase({.num_heads = 2,
                              .num_kv_heads = 1,
                              .q_len = 600,
                              .kv_len = 300,
                              .head_dim = 24,
                              .head_dim_v = 40});
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(0);
  Random random(1);
  c.bias = MakeBias({1, 1, 600, 300}, random);
  c.alibi_slopes = {0.1f, 0.2f};
  c.sinks = {0.5f, 0.0f};
  c.AddTensor("distance_bias", {2, 31}, random);
  c.AddTensor("log_gates", {1, 2, 300}, random);
  c.tensors["log_gates"].buffer.ForEach(
      [](int64_t, int64_t, int64_t, int64_t, float& x) { x = -std::abs(x); });
  ExpectThreadsChangeNoBit(c);
}

TEST_P(Gradient, EmptyRowsHaveZeroGradients) {
  AttentionCase c = MakeCase(kGradientSizes);
  c.sinks = {1.0f, 0.0f, -1.0f, 2.0f};
  ExpectEmptyRowsGiveZeros(c);
}

// Fills what no row sees with NaN; nothing may change.
TEST_P(Gradient, MaskedNonFiniteValuesDoNotMatter) {
  AttentionCase c = MakeCase(kGradientSizes);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(0);
  c.key_lengths = {4, 5};
  Random random(2);
  c.bias = MakeBias({2, 4, 5, 7}, random);
  const Cotangents cotangents = MakeCotangents(c);
  const Values expected = RunBackward(c, cotangents);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t i = 0; i < 5; ++i) {
        for (int64_t j = 0; j < 7; ++j) {
          if (j > i || j >= 4 + b) c.bias(b, h, i, j) = kNan;
        }
      }
    }
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t j = 4 + b; j < 7; ++j) {
        c.k(b, h, j, 1) = kNan;
        c.v(b, h, j, 1) = -kInf;
      }
    }
  }
  EXPECT_EQ(RunBackward(c, cotangents), expected);
}

TEST_P(Gradient, VisibleNonFiniteValuesReachWhatSeesThemAndNothingElse) {
  const Sizes sizes = {
      .num_heads = 1, .num_kv_heads = 1, .q_len = 4, .kv_len = 4, .head_dim = 3, .head_dim_v = 2};
  AttentionCase c = MakeCase(sizes);
  c.scalars.causal = true;
  Cotangents cotangents = MakeCotangents(c);
  cotangents.output(0, 0, 1, 0) = kNan;  // query 1 sees keys 0 and 1
  Values lost = RunBackward(c, cotangents);
  EXPECT_THAT(LostRows(lost["q"], 3), ::testing::ElementsAre(false, true, false, false));
  EXPECT_THAT(LostRows(lost["k"], 3), ::testing::ElementsAre(true, true, false, false));
  EXPECT_THAT(LostRows(lost["v"], 2), ::testing::ElementsAre(true, true, false, false));
  EXPECT_FALSE(std::isnan(lost["v"][1]));  // the other dimension of d_out is finite

  cotangents = MakeCotangents(c);
  c.q(0, 0, 2, 1) = kNan;  // query 2 sees all but key 3
  lost = RunBackward(c, cotangents);
  EXPECT_THAT(LostRows(lost["q"], 3), ::testing::ElementsAre(false, false, true, false));
  EXPECT_THAT(LostRows(lost["k"], 3), ::testing::ElementsAre(true, true, true, false));
  EXPECT_THAT(LostRows(lost["v"], 2), ::testing::ElementsAre(true, true, true, false));

  c = MakeCase(sizes);
  c.scalars.causal = true;
  c.k(0, 0, 3, 0) = kInf;  // only query 3 sees it
  lost = RunBackward(c, cotangents);
  EXPECT_THAT(LostRows(lost["q"], 3), ::testing::ElementsAre(false, false, false, true));

  c = MakeCase(sizes);
  c.scalars.causal = true;
  c.v(0, 0, 2, 0) = kNan;  // queries 2 and 3 see it
  lost = RunBackward(c, cotangents);
  EXPECT_THAT(LostRows(lost["q"], 3), ::testing::ElementsAre(false, false, true, true));
  EXPECT_THAT(LostRows(lost["v"], 2), ::testing::ElementsAre(false, false, false, false));
}

// A gradient that nobody asks for changes no other.
TEST_P(Gradient, EachGradientCanBeAskedForAlone) {
  const AttentionCase c = MakeCase(kGradientSizes);
  const Cotangents cotangents = MakeCotangents(c);
  Values expected = RunBackward(c, cotangents);
  const Results forward = RunAttention(c);
  const auto run = [&](const Buffer<float>& like, StoredOutput AttentionGradients::*which) {
    Buffer<float> d(like.shape(), Layout::kDense, kNan);
    AttentionGradients gradients;
    gradients.d_lse = cotangents.lse.view();
    gradients.*which = d.view();
    AttentionBackward(c.q.view(), c.k.view(), c.v.view(), forward.output.view(), forward.lse.view(),
                      cotangents.output.view(), c.options(), gradients);
    const std::vector<float> elements = d.Elements();
    return std::vector<double>(elements.begin(), elements.end());
  };
  EXPECT_EQ(run(c.q, &AttentionGradients::d_q), expected["q"]);
  EXPECT_EQ(run(c.k, &AttentionGradients::d_k), expected["k"]);
  EXPECT_EQ(run(c.v, &AttentionGradients::d_v), expected["v"]);
}

}  // namespace
}  // namespace heed::testing
