// AttentionBackward() through normalisers that need whole rows, against central differences of the
// float64 oracle.
#include <cmath>
#include <limits>

#include "attention_case.h"
#include "gmock/gmock.h"
#include "gradient_case.h"
#include "gtest/gtest.h"
#include "heed/gradient.h"
#include "simd_targets.h"
#include "src/parallel/dry_run.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class RowGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(RowGradient);

// Odd sizes, two query heads a KV head.
constexpr Sizes kSmall = {.batch = 2,
                          .num_heads = 4,
                          .num_kv_heads = 2,
                          .q_len = 5,
                          .kv_len = 7,
                          .head_dim = 3,
                          .head_dim_v = 5};

constexpr Normalize kRowNormalisers[] = {Normalize::kHard, Normalize::kTopK, Normalize::kSparsemax,
                                         Normalize::kEntmax15, Normalize::kStickBreaking};

AttentionCase MakeRowCase(Normalize normalize, const Sizes& sizes, uint64_t seed = 1) {
  AttentionCase c = MakeCase(sizes, seed);
  c.scalars.normalize = normalize;
  c.scalars.top_k = sizes.kv_len > 20 ? 30 : 3;
  return c;
}

TEST_P(RowGradient, MatchesDifferencesOfReference) {
  for (const Normalize normalize : kRowNormalisers) {
    ExpectGradientsMatch(MakeRowCase(normalize, kSmall));
    ExpectGradientsMatch(MakeRowCase(normalize, {.num_heads = 3,
                                                 .num_kv_heads = 1,
                                                 .q_len = 17,
                                                 .kv_len = 3,
                                                 .head_dim = 8,
                                                 .head_dim_v = 1}));
  }
}

TEST_P(RowGradient, MatchesForMasksAndModifiers) {
  Random random(5);
  for (const Normalize normalize : kRowNormalisers) {
    AttentionCase c = MakeRowCase(normalize, kSmall);
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::At(-2);  // two empty rows
    ExpectGradientsMatch(c);
    c.scalars.window = Window{2, 1};
    c.scalars.query_offset = QueryOffset::At(1);
    c.scalars.dropout = {.p = 0.3, .seed = 9};
    c.alibi_slopes = {0.5f, 0.25f, 0.125f, -0.3f};
    c.bias = MakeBias({2, 1, 5, 7}, random, 0.2);
    c.key_lengths = {6, 4};
    ExpectGradientsMatch(c);
    c.keep = MakeKeep({1, 4, 5, 7}, random, 0.6);
    c.scalars.softcap = 1.5;
    ExpectGradientsMatch(c);
  }
}

TEST_P(RowGradient, MatchesForTopKWithSinks) {
  AttentionCase c = MakeRowCase(Normalize::kTopK, kSmall);
  c.sinks = {0.3f, -1.0f, 2.0f, -kInf};
  ExpectGradientsMatch(c);
}

TEST_P(RowGradient, MatchesForLargeLogits) {
  for (const Normalize normalize : kRowNormalisers) {
    AttentionCase c = MakeRowCase(normalize, kSmall);
    c.scalars.scale = 30;
    ExpectGradientsMatch(c, 300);
  }
}

// Several tiles of keys, row groups and parts; runs of panels where keys are kept in blocks.
TEST_P(RowGradient, MatchesAlongRandomDirectionsForLongerSequences) {
  Random random(4);
  for (const Normalize normalize : kRowNormalisers) {
    AttentionCase c = MakeRowCase(normalize, {.num_heads = 2,
                                              .num_kv_heads = 1,
                                              .q_len = 130,
                                              .kv_len = 600,
                                              .head_dim = 8,
                                              .head_dim_v = 9});
    if (normalize == Normalize::kHard) {
      // Somewhere a step of the difference changes a choice.
      const Values gradients = RunBackward(c, MakeCotangents(c));
      EXPECT_THAT(gradients.at("q"), ::testing::Each(0.0));
      EXPECT_THAT(gradients.at("k"), ::testing::Each(0.0));
      continue;
    }
    c.scalars.softcap = 3;
    ExpectDirectionsMatch(c, 1);
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::At(400);
    c.lists.q_block = c.lists.kv_block = 32;
    c.lists.block_keep = MakeKeep({1, 1, 5, 19}, random, 0.5);
    ExpectDirectionsMatch(c, 1);
  }
}

TEST_P(RowGradient, ThreadsChangeNoBit) {
  for (const Normalize normalize : kRowNormalisers) {
    const AttentionCase c = MakeRowCase(normalize, {.num_heads = 2,
                                                    .num_kv_heads = 1,
                                                    .q_len = 600,
                                                    .kv_len = 300,
                                                    .head_dim = 8,
                                                    .head_dim_v = 8});
    const Cotangents cotangents = MakeCotangents(c);
    const auto one = MakeThreadPool(1), three = MakeThreadPool(3);
    EXPECT_EQ(RunBackward(c, cotangents, three.get()), RunBackward(c, cotangents, one.get()));
  }
}

TEST_P(RowGradient, EmptyRowsHaveZeroGradients) {
  for (const Normalize normalize : kRowNormalisers) {
    AttentionCase c = MakeRowCase(normalize, kSmall);
    c.key_lengths = {0, 0};
    Cotangents cotangents = MakeCotangents(c);
    cotangents.output(0, 0, 0, 0) = kNan;
    for (const auto& [name, gradient] : RunBackward(c, cotangents)) {
      EXPECT_THAT(gradient, ::testing::Each(0.0)) << name;
    }
  }
}

TEST_P(RowGradient, MaskedNonFiniteValuesDoNotMatter) {
  for (const Normalize normalize : kRowNormalisers) {
    AttentionCase c = MakeRowCase(normalize, kSmall);
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::At(1);
    c.key_lengths = {4, 5};
    const Cotangents cotangents = MakeCotangents(c);
    const Values expected = RunBackward(c, cotangents);
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t j = 4 + b; j < 7; ++j) {
        c.k(b, 0, j, 1) = c.k(b, 1, j, 2) = kNan;
        c.v(b, 0, j, 1) = -kInf;
      }
    }
    EXPECT_EQ(RunBackward(c, cotangents), expected);
  }
}

// Which rows of a gradient [1, 1, len, dim] hold NaN.
std::vector<bool> LostRows(const std::vector<double>& gradient, int64_t dim) {
  std::vector<bool> lost(gradient.size() / static_cast<size_t>(dim));
  for (size_t n = 0; n < gradient.size(); ++n) {
    if (std::isnan(gradient[n])) lost[n / static_cast<size_t>(dim)] = true;
  }
  return lost;
}

TEST_P(RowGradient, VisibleNonFiniteValuesReachWhatSeesThemAndNothingElse) {
  for (const Normalize normalize : kRowNormalisers) {
    if (normalize == Normalize::kHard) continue;  // passes nothing to scores
    AttentionCase c = MakeRowCase(normalize, {.num_heads = 1,
                                              .num_kv_heads = 1,
                                              .q_len = 4,
                                              .kv_len = 4,
                                              .head_dim = 3,
                                              .head_dim_v = 2});
    c.scalars.causal = true;
    c.scalars.scale = 0.01;  // all keys have a weight
    c.scalars.top_k = 4;
    c.q(0, 0, 2, 1) = kNan;  // query 2 sees all but key 3
    Values lost = RunBackward(c, MakeCotangents(c));
    EXPECT_THAT(LostRows(lost["q"], 3), ::testing::ElementsAre(false, false, true, false));
    EXPECT_THAT(LostRows(lost["k"], 3), ::testing::ElementsAre(true, true, true, false));
    EXPECT_THAT(LostRows(lost["v"], 2), ::testing::ElementsAre(true, true, true, false));
    c.q(0, 0, 2, 1) = 0;
    Cotangents cotangents = MakeCotangents(c);
    cotangents.output(0, 0, 1, 0) = kNan;  // query 1 sees keys 0 and 1
    lost = RunBackward(c, cotangents);
    EXPECT_THAT(LostRows(lost["q"], 3), ::testing::ElementsAre(false, true, false, false));
    EXPECT_THAT(LostRows(lost["k"], 3), ::testing::ElementsAre(true, true, false, false));
    EXPECT_THAT(LostRows(lost["v"], 2), ::testing::ElementsAre(true, true, false, false));
  }
}

// Bytes beside inputs and results at one time, with one thread.
int64_t ScratchBytes(int64_t len, Normalize normalize) {
  static float nothing = 0;
  const auto view = [&](int64_t dim) {
    return TensorView<float>{&nothing, {1, 1, len, dim}, {len * dim, len * dim, dim, 1}};
  };
  AttentionGradients gradients;
  gradients.d_q = gradients.d_k = gradients.d_v = view(64);
  AttentionOptions options;
  options.normalize = normalize;
  DryRun dry;
  IdlePool pool(1);
  AttentionBackward(view(64), view(64), view(64), view(64), {}, view(64), options, gradients,
                    &pool);
  return dry.most_bytes();
}

TEST(RowGradientMemory, DoesNotGrowWithThePairs) {
  for (const Normalize normalize : {Normalize::kSparsemax, Normalize::kStickBreaking}) {
    const int64_t bytes = ScratchBytes(16384, normalize);
    EXPECT_LT(bytes, 16384 * int64_t{16384} * 4 / 10);
    EXPECT_LT(ScratchBytes(32768, normalize), 2 * bytes);
  }
}

}  // namespace
}  // namespace heed::testing
