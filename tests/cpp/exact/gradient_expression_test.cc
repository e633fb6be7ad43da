// AttentionBackward() through score_mod, against central differences of the float64 oracle.
#include <cmath>
#include <string>

#include "attention_case.h"
#include "gmock/gmock.h"
#include "gradient_case.h"
#include "gtest/gtest.h"
#include "heed/gradient.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class ExpressionGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(ExpressionGradient);

AttentionCase MakeModified(const Sizes& sizes, const std::string& score_mod) {
  AttentionCase c = MakeCase(sizes);
  c.score_mod = score_mod;
  c.scalars.query_offset = QueryOffset::At(1);
  return c;
}

TEST_P(ExpressionGradient, MatchesDifferencesOfReference) {
  for (const char* score_mod :
       {"score", "7 - kvIndex * 0.1", "score * 0.5 + sin(kvIndex)", "5 * tanh(score / 5)",
        "score - 0.3 * abs(position - kvIndex)", "kvIndex % 3 == 0 ? -inf : score * score",
        "score > 0 ? log(1 + score) : exp(score) - 1", "min(score, 0.5) + max(-0.25, score)",
        "sigmoid(score) / (1 + score * score)", "sqrt(1 + score * score) - cos(score)",
        "abs(score) * h - (-score)", "floor(score) + score % 0.7 + 2 % (3 + score)",
        "(score > 0 && !(h == 1)) * score + (b || score < 0) + sin(score)"}) {
    ExpectGradientsMatch(MakeModified(kGradientSizes, score_mod));
  }
}

TEST_P(ExpressionGradient, MatchesWithOtherPlugs) {
  Random random(6);
  AttentionCase c = MakeModified(kGradientSizes, "2 * tanh(score) - 0.1 * score * kvIndex");
  c.scalars.softcap = 2;
  c.scalars.dropout = {.p = 0.3, .seed = 3};
  c.bias = MakeBias({2, 1, 5, 7}, random, 0.2);
  c.alibi_slopes = {0.5f, 0.25f, 0.125f, -0.3f};
  c.sinks = {0.3f, -1.0f, 2.0f, 0.1f};
  c.AddTensor("distance_bias", {4, 5}, random);
  ExpectGradientsMatch(c);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(-1);  // an empty row
  c.keep = MakeKeep({1, 4, 5, 7}, random, 0.7);
  ExpectGradientsMatch(c);
}

TEST_P(ExpressionGradient, MatchesForOtherNormalisers) {
  Random random(7);
  for (const Normalize normalize : {Normalize::kSigmoid, Normalize::kRelu, Normalize::kSparsemax,
                                    Normalize::kStickBreaking, Normalize::kCope}) {
    AttentionCase c = MakeModified(kGradientSizes, "2 * tanh(score) + 0.3 * score");
    c.scalars.normalize = normalize;
    if (normalize == Normalize::kCope) AddCopeTable(c, 1, 4, random);
    c.bias = MakeBias({1, 1, 5, 7}, random, 0.2);
    c.scalars.softcap = 3;
    ExpectGradientsMatch(c);
  }
}

// Several tiles of keys and parts; runs of panels where keys are kept in blocks.
TEST_P(ExpressionGradient, MatchesAlongRandomDirectionsForLongerSequences) {
  Random random(4);
  for (const Normalize normalize : {Normalize::kSoftmax, Normalize::kEntmax15}) {
    AttentionCase c = MakeModified({.num_heads = 2,
                                    .num_kv_heads = 1,
                                    .q_len = 130,
                                    .kv_len = 600,
                                    .head_dim = 8,
                                    .head_dim_v = 9},
                                   "2 * tanh(score) - 0.01 * (position - kvIndex)");
    c.scalars.normalize = normalize;
    ExpectDirectionsMatch(c, 1);
    c.lists.q_block = c.lists.kv_block = 32;
    c.lists.block_keep = MakeKeep({1, 1, 5, 19}, random, 0.5);
    ExpectDirectionsMatch(c, 1);
  }
}

TEST_P(ExpressionGradient, ThreadsChangeNoBit) {
  ExpectThreadsChangeNoBit(MakeModified({.num_heads = 2,
                                         .num_kv_heads = 1,
                                         .q_len = 600,
                                         .kv_len = 300,
                                         .head_dim = 8,
                                         .head_dim_v = 8},
                                        "tanh(score)"));
}

TEST_P(ExpressionGradient, EmptyRowsHaveZeroGradients) {
  ExpectEmptyRowsGiveZeros(MakeModified(kGradientSizes, "score * score"));
}

TEST_P(ExpressionGradient, MaskedNonFiniteValuesDoNotMatter) {
  ExpectMaskedNanDoesNotMatter(MakeModified(kGradientSizes, "tanh(score) * score"));
}

// Where a key is hidden, the derivative may be anything.
TEST_P(ExpressionGradient, SlopesOfHiddenKeysDoNotMatter) {
  AttentionCase c = MakeModified(kGradientSizes, "score / (3 - kvIndex)");
  c.key_lengths = {3, 2};
  for (const auto& [name, gradient] : RunBackward(c, MakeCotangents(c))) {
    for (const double x : gradient) ASSERT_TRUE(std::isfinite(x)) << name;
  }
  ExpectGradientsMatch(c);
}

TEST(CompileSlope, IsTheDerivativeByTheScore) {
  const PairTile::Row row = {1, 2, 3};
  float values[] = {-2, -0.5f, 0, 0.5f, 4};
  const TileFunction slope =
      CompileSlope("score_mod", "abs(score) * kvIndex + min(score, 0)", ExpressionValue::kScore);
  slope({0, &row, 1, 10, 5, values, 5});
  // The smaller of equal numbers is the first.
  EXPECT_THAT(values, ::testing::ElementsAre(-9, -10, 1, 13, 14));
}

// 0.1 goes 9 times into 1 in float32, where it is a little more, but the quotient rounds to 10.
TEST(CompileSlope, OfARemainderCountsHowOftenTheDivisorWentIn) {
  const PairTile::Row row = {0, 0, 0};
  float values[] = {0.1f, 0.3f, -0.3f, 3};
  CompileSlope("score_mod", "1 % score", ExpressionValue::kScore)({0, &row, 1, 0, 4, values, 4});
  EXPECT_THAT(values, ::testing::ElementsAre(-9, -3, 4, 0));
}

TEST(CompileSlope, RefusesDerivativesThatAreTooLong) {
  std::string sum = "score";
  for (int n = 0; n < 200; ++n) sum += "+tanh(score*" + std::to_string(n) + ")";
  EXPECT_NO_THROW(CompileExpression("score_mod", sum, ExpressionValue::kScore));
  try {
    CompileSlope("score_mod", sum, ExpressionValue::kScore);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("the derivative of score_mod"));
  }
}

}  // namespace
}  // namespace heed::testing
