// What happens to a score between the product and the softmax: scale, softcap, bias, ALiBi, sinks.
#include <cfloat>
#include <cmath>
#include <limits>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class AttentionModify : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AttentionModify);

AttentionCase Small(int64_t q_len = 33, int64_t kv_len = 390) {
  return MakeCase({.batch = 2,
                   .num_heads = 4,
                   .num_kv_heads = 2,
                   .q_len = q_len,
                   .kv_len = kv_len,
                   .head_dim = 16,
                   .head_dim_v = 16});
}

TEST_P(AttentionModify, ScaleMayBeZeroOrNegative) {
  for (const double scale : {0.0, -0.5, 1.0, 2.5, 1e-30}) {
    AttentionCase c = Small();
    c.scalars.scale = scale;
    ExpectMatchesReference(c);
  }
}

TEST_P(AttentionModify, SoftcapMatchesReference) {
  for (const double cap : {0.01, 1.0, 30.0, 50.0, 1e6}) {
    AttentionCase c = Small();
    c.scalars.softcap = cap;
    c.scalars.scale = 1.0;
    ExpectMatchesReference(c);
  }
}

TEST_P(AttentionModify, SoftcapComesBeforeBiasAndKeep) {
  AttentionCase c = Small();
  Random random(2);
  c.scalars.softcap = 2.0;
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(50);
  c.bias = MakeBias({1, 4, 33, 390}, random, 0.3);
  ExpectMatchesReference(c);
}

TEST_P(AttentionModify, BiasBroadcastsAlongEveryAxis) {
  const Extents full = {2, 4, 33, 390};
  for (unsigned ones = 0; ones < 16; ++ones) {
    Extents shape = full;
    for (unsigned axis = 0; axis < 4; ++axis) {
      if (ones >> axis & 1) shape[axis] = 1;
    }
    Random random(ones + 20);
    AttentionCase c = Small();
    c.bias = MakeBias(shape, random, 0.1, ones % 2 ? Layout::kPadded : Layout::kDense);
    ExpectMatchesReference(c);
  }
}

TEST_P(AttentionModify, BiasOfMinusInfinityIsNotKept) {
  AttentionCase c = Small();
  c.bias = Buffer<float>({1, 1, 33, 390}, Layout::kDense, -kInf);
  c.bias(0, 0, 5, 258) = -1e30f;
  ExpectMatchesReference(c);
  const Results r = RunAttention(c);
  EXPECT_EQ(r.output(1, 3, 5, 2), c.v(1, 1, 258, 2));
  EXPECT_EQ(r.output(1, 3, 6, 2), 0.0f);
  EXPECT_EQ(r.lse(1, 3, 6, 0), -kInf);
}

TEST_P(AttentionModify, RowOfLowestFloatBiasIsNotEmpty) {
  AttentionCase c = Small(3, 390);
  c.bias = Buffer<float>({1, 1, 3, 390}, Layout::kDense, 0.0f);
  for (int64_t j = 0; j < 390; ++j) c.bias(0, 0, 1, j) = -FLT_MAX;
  const Results r = RunAttention(c, {.lse = true, .weights = true});
  // Every score of the row rounds to -FLT_MAX: the weights are all alike.
  for (int64_t j = 0; j < 390; ++j) EXPECT_NEAR(r.weights(0, 0, 1, j), 1 / 390.0, 1e-8);
  EXPECT_EQ(r.lse(0, 0, 1, 0), -FLT_MAX);
  EXPECT_TRUE(std::isfinite(r.output(0, 0, 1, 0)));
}

TEST_P(AttentionModify, HugeFiniteBiasPicksItsKeys) {
  for (const float huge : {1e30f, 3e38f, 1e5f}) {
    AttentionCase c = Small(3, 390);
    c.bias = Buffer<float>({1, 1, 1, 390}, Layout::kDense, 0.0f);
    c.bias(0, 0, 0, 77) = huge;
    const Results r = RunAttention(c, {.lse = true, .weights = true});
    EXPECT_EQ(r.weights(0, 0, 2, 77), 1.0f);
    EXPECT_EQ(r.output(0, 0, 2, 3), c.v(0, 0, 77, 3));
  }
}

TEST_P(AttentionModify, AlibiMatchesReference) {
  for (const int64_t offset : {-20, 0, 107, 300}) {
    AttentionCase c = Small();
    c.alibi_slopes = AlibiSlopes(4);
    c.scalars.query_offset = QueryOffset::At(offset);
    ExpectMatchesReference(c);
    c.scalars.causal = true;
    ExpectMatchesReference(c);
  }
}

TEST_P(AttentionModify, AlibiSlopesMayBeNegativeOrZero) {
  AttentionCase c = Small(65, 65);
  c.alibi_slopes = {-0.03f, 0.0f, 0.1f, 2.0f};
  ExpectMatchesReference(c);
}

TEST_P(AttentionModify, SinksJoinTheDenominatorAndLse) {
  AttentionCase c = Small();
  c.sinks = {0.0f, 5.0f, -kInf, -20.0f};
  ExpectMatchesReference(c);
  c.sinks = {80.0f, 200.0f, -200.0f, 1e30f};
  ExpectMatchesReference(c);
}

TEST_P(AttentionModify, ScoresOfEachStageAreReturned) {
  AttentionCase c = Small();
  Random random(3);
  c.scalars.softcap = 1.5;
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(30);
  c.bias = MakeBias({1, 1, 33, 390}, random, 0.1);
  for (const auto& [stage, word] :
       {std::pair{ScoreStage::kRaw, "raw"}, std::pair{ScoreStage::kCapped, "capped"},
        std::pair{ScoreStage::kBiased, "biased"}}) {
    Request request = c.request();
    request.params.push_back({"return_scores", std::string(word)});
    const std::vector<double> expected = RunOracle(request).at("scores");
    const std::vector<float> actual = RunAttention(c, {.scores = stage}).scores.Elements();
    ExpectWithin(actual, expected, std::vector<double>(actual.size(), 4e-6), word);
  }
}

TEST(AlibiSlopes, ArePowersOfTheHeadCount) {
  // keras-team/keras-hub, alibi_bias_test.py.
  const std::vector<float> eight = {0.5f,     0.25f,     0.125f,     0.0625f,
                                    0.03125f, 0.015625f, 0.0078125f, 0.00390625f};
  EXPECT_EQ(AlibiSlopes(8), eight);
}

TEST(AlibiSlopes, InterleaveForOtherHeadCounts) {
  // keras-team/keras-hub, alibi_bias_test.py, 14 heads.
  const std::vector<float> expected = {
      0.5f,        0.25f,       0.125f,      0.0625f,     0.03125f,    0.015625f,   0.0078125f,
      0.00390625f, 0.70710677f, 0.35355338f, 0.17677669f, 0.08838835f, 0.04419417f, 0.02209709f};
  const std::vector<float> slopes = AlibiSlopes(14);
  ASSERT_EQ(slopes.size(), expected.size());
  for (size_t h = 0; h < expected.size(); ++h) EXPECT_FLOAT_EQ(slopes[h], expected[h]);
}

}  // namespace
}  // namespace heed::testing
