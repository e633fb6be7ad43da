// AttentionBackward() through normalisers that need whole rows, against central differences of the
// float64 oracle.
#include <limits>

#include "attention_case.h"
#include "gmock/gmock.h"
#include "gradient_case.h"
#include "gtest/gtest.h"
#include "heed/gradient.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class RowGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(RowGradient);

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
    ExpectGradientsMatch(MakeRowCase(normalize, kGradientSizes));
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
    AttentionCase c = MakeRowCase(normalize, kGradientSizes);
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
  AttentionCase c = MakeRowCase(Normalize::kTopK, kGradientSizes);
  c.sinks = {0.3f, -1.0f, 2.0f, -kInf};
  ExpectGradientsMatch(c);
}

TEST_P(RowGradient, MatchesForLargeLogits) {
  for (const Normalize normalize : kRowNormalisers) {
    AttentionCase c = MakeRowCase(normalize, kGradientSizes);
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
    ExpectThreadsChangeNoBit(MakeRowCase(normalize, {.num_heads = 2,
                                                     .num_kv_heads = 1,
                                                     .q_len = 600,
                                                     .kv_len = 300,
                                                     .head_dim = 8,
                                                     .head_dim_v = 8}));
  }
}

TEST_P(RowGradient, EmptyRowsHaveZeroGradients) {
  for (const Normalize normalize : kRowNormalisers) {
    ExpectEmptyRowsGiveZeros(MakeRowCase(normalize, kGradientSizes));
  }
}

TEST_P(RowGradient, MaskedNonFiniteValuesDoNotMatter) {
  for (const Normalize normalize : kRowNormalisers) {
    AttentionCase c = MakeRowCase(normalize, kGradientSizes);
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::At(1);
    ExpectMaskedNanDoesNotMatter(c);
  }
}

TEST_P(RowGradient, VisibleNonFiniteValuesReachWhatSeesThemAndNothingElse) {
  for (const Normalize normalize : kRowNormalisers) {
    if (normalize == Normalize::kHard) continue;  // passes nothing to scores
    AttentionCase c = MakeRowCase(normalize, kFourTokens);
    c.scalars.scale = 0.01;
    c.scalars.top_k = 4;
    ExpectNanReachesWhatSeesIt(c);
  }
}

TEST(RowGradientMemory, DoesNotGrowWithThePairs) {
  for (const Normalize normalize : {Normalize::kSparsemax, Normalize::kStickBreaking}) {
    AttentionOptions options;
    options.normalize = normalize;
    const int64_t bytes = BackwardScratch(16384, options);
    EXPECT_LT(bytes, 16384 * int64_t{16384} * 4 / 10);
    EXPECT_LT(BackwardScratch(32768, options), 2 * bytes);
  }
}

}  // namespace
}  // namespace heed::testing
