// AttentionBackward() through additive scores, against central differences of the float64 oracle.
#include <limits>
#include <utility>
#include <vector>

#include "attention_case.h"
#include "gmock/gmock.h"
#include "gradient_case.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class AdditiveGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AdditiveGradient);

// With all parameters, those of queries one or one a head.
AttentionCase MakeAdditive(const Sizes& sizes, int64_t heads, int64_t kv_heads, int64_t hidden) {
  AttentionCase c = MakeCase(sizes);
  Random random(4);
  c.scalars.score = Score::kAdditive;
  c.AddTensor("query_weight", {heads, hidden, sizes.head_dim}, random, 0.5);
  c.AddTensor("key_weight", {kv_heads, hidden, sizes.head_dim}, random, 0.4);
  c.AddTensor("score_bias", {hidden}, random, 0.5);
  c.AddTensor("score_vector", {heads, hidden}, random, 0.7);
  return c;
}

TEST_P(AdditiveGradient, MatchesDifferencesOfReference) {
  AttentionCase c = MakeCase(kGradientSizes);
  c.scalars.score = Score::kAdditive;
  c.scalars.scale = 0.8;
  ExpectGradientsMatch(c);  // no parameters
  Random random(4);
  for (const int64_t heads : {1, 4}) {
    c = MakeAdditive(kGradientSizes, heads, heads == 1 ? 1 : 2, 9);
    ExpectGradientsMatch(c);
    c.scalars.softcap = 2;
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::At(-1);
    c.bias = MakeBias({2, 1, 5, 7}, random, 0.2);
    ExpectGradientsMatch(c);
  }
}

TEST_P(AdditiveGradient, KeysMayBeWiderThanQueries) {
  AttentionCase c = MakeAdditive(kGradientSizes, 1, 1, 9);
  c.k = MakeCase({.batch = 2, .num_heads = 2, .q_len = 1, .kv_len = 7, .head_dim = 6}).k;
  Random random(6);
  c.AddTensor("key_weight", {2, 9, 6}, random, 0.4);
  ExpectGradientsMatch(c);
}

// Large arguments of tanh; several tiles and parts.
TEST_P(AdditiveGradient, MatchesAlongRandomDirectionsForLongerSequences) {
  AttentionCase c = MakeCase({.num_heads = 2,
                              .num_kv_heads = 1,
                              .q_len = 600,
                              .kv_len = 270,
                              .head_dim = 5,
                              .head_dim_v = 4});
  Random random(4);
  c.scalars.score = Score::kAdditive;
  c.AddTensor("query_weight", {2, 17, 5}, random, 3);
  c.AddTensor("score_vector", {17}, random, 1);
  c.AddTensor("key_weight", {17, 5}, random, 0.5);
  c.scalars.window = Window{100, 20};
  c.scalars.query_offset = QueryOffset::At(-50);
  ExpectDirectionsMatch(c, 1);
}

TEST_P(AdditiveGradient, ThreadsChangeNoBit) {
  ExpectThreadsChangeNoBit(MakeAdditive({.num_heads = 2,
                                         .num_kv_heads = 1,
                                         .q_len = 600,
                                         .kv_len = 300,
                                         .head_dim = 5,
                                         .head_dim_v = 4},
                                        2, 1, 9));
}

TEST_P(AdditiveGradient, EmptyRowsHaveZeroGradients) {
  ExpectEmptyRowsGiveZeros(MakeAdditive(kGradientSizes, 4, 2, 9));
}

TEST_P(AdditiveGradient, MaskedNonFiniteValuesDoNotMatter) {
  ExpectMaskedNanDoesNotMatter(MakeAdditive(kGradientSizes, 4, 2, 9));
  AttentionCase c = MakeAdditive(kGradientSizes, 1, 1, 9);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(1);
  ExpectMaskedNanDoesNotMatter(c);
}

TEST_P(AdditiveGradient, VisibleNanReachesWhatSeesItAndNothingElse) {
  AttentionCase c = MakeAdditive(
      {.num_heads = 1, .num_kv_heads = 1, .q_len = 4, .kv_len = 4, .head_dim = 3, .head_dim_v = 2},
      1, 1, 9);
  c.scalars.causal = true;
  c.q(0, 0, 2, 1) = kNan;  // query 2 sees all but key 3
  const Values lost = RunBackward(c, MakeCotangents(c));
  EXPECT_THAT(LostRows(lost.at("q"), 3), ::testing::ElementsAre(false, false, true, false));
  EXPECT_THAT(LostRows(lost.at("k"), 3), ::testing::ElementsAre(true, true, true, false));
  EXPECT_THAT(LostRows(lost.at("v"), 2), ::testing::ElementsAre(true, true, true, false));
}

TEST(AdditiveGradientMemory, DoesNotGrowWithThePairs) {
  std::vector<float> weights(32 * 64), sums[2] = {weights, weights};
  const TensorView<const float> weight = Contiguous(std::as_const(weights).data(), 1, 1, 32, 64);
  AttentionOptions options;
  options.score = Score::kAdditive;
  options.query_weight = options.key_weight = weight;
  AttentionGradients gradients;
  gradients.d_query_weight = Contiguous(sums[0].data(), 1, 1, 32, 64);
  gradients.d_key_weight = Contiguous(sums[1].data(), 1, 1, 32, 64);
  const int64_t bytes = BackwardScratch(16384, options, gradients);
  EXPECT_LT(bytes, 16384 * int64_t{16384} * 4 / 10);
  EXPECT_LT(BackwardScratch(32768, options, gradients), 2 * bytes);
}

}  // namespace
}  // namespace heed::testing
