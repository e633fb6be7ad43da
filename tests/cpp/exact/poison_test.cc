// What is not kept cannot matter, and what is visible and not finite reaches its rows only.
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
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kPoisons[] = {kNan, kInf, -kInf, FLT_MAX};

class AttentionPoison : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AttentionPoison);

AttentionCase Small(int64_t q_len = 33, int64_t kv_len = 390) {
  return MakeCase({.batch = 2,
                   .num_heads = 4,
                   .num_kv_heads = 2,
                   .q_len = q_len,
                   .kv_len = kv_len,
                   .head_dim = 16,
                   .head_dim_v = 17});
}

void PoisonKey(AttentionCase& c, int64_t b, int64_t j, float poison) {
  for (int64_t h = 0; h < c.sizes.num_kv_heads; ++h) {
    c.k(b, h, j, j % c.sizes.head_dim) = poison;
    c.v(b, h, j, j % c.sizes.head_dim_v) = poison;
  }
}

// The case with and without poison in keys that nothing sees: same bits, no NaN anywhere.
void ExpectPoisonChangesNothing(const AttentionCase& clean, const AttentionCase& poisoned) {
  const Results expected = RunAttention(clean, {.lse = true, .weights = true});
  const Results actual = RunAttention(poisoned, {.lse = true, .weights = true});
  EXPECT_EQ(Bits(expected.output), Bits(actual.output));
  EXPECT_EQ(Bits(expected.lse), Bits(actual.lse));
  EXPECT_EQ(Bits(expected.weights), Bits(actual.weights));
  ExpectMatchesReference(poisoned);
}

TEST_P(AttentionPoison, KeysBeyondTheLengthMayBeAnything) {
  for (const float poison : kPoisons) {
    AttentionCase c = Small();
    c.key_lengths = {70, 270};
    AttentionCase poisoned = c;
    for (int64_t j = 70; j < 390; ++j) PoisonKey(poisoned, 0, j, poison);
    for (int64_t j = 270; j < 390; ++j) PoisonKey(poisoned, 1, j, poison);
    ExpectPoisonChangesNothing(c, poisoned);
  }
}

TEST_P(AttentionPoison, KeysThatKeepHidesMayBeAnything) {
  for (const float poison : kPoisons) {
    AttentionCase c = Small();
    c.keep = Buffer<uint8_t>({1, 1, 1, 390}, Layout::kDense, 1);
    AttentionCase poisoned = c;
    for (const int64_t j : {0, 1, 63, 64, 100, 255, 256, 389}) {
      c.keep(0, 0, 0, j) = poisoned.keep(0, 0, 0, j) = 0;
      PoisonKey(poisoned, 0, j, poison);
      PoisonKey(poisoned, 1, j, poison);
    }
    ExpectPoisonChangesNothing(c, poisoned);
  }
}

TEST_P(AttentionPoison, OneCellOfMinusInfinityBiasHidesAPoisonedKey) {
  for (const float poison : kPoisons) {
    for (const int64_t hidden : {0, 77, 256, 389}) {
      AttentionCase c = Small();
      c.bias = Buffer<float>({1, 1, 1, 390}, Layout::kDense, 0.25f);
      c.bias(0, 0, 0, hidden) = -kInf;
      AttentionCase poisoned = c;
      PoisonKey(poisoned, 0, hidden, poison);
      PoisonKey(poisoned, 1, hidden, poison);
      ExpectPoisonChangesNothing(c, poisoned);
    }
  }
}

TEST_P(AttentionPoison, BiasAndAlibiOfHiddenCellsMayBeAnything) {
  for (const float poison : kPoisons) {
    AttentionCase c = Small(60, 60);
    Random random(2);
    c.scalars.causal = true;
    c.scalars.softcap = 5.0;
    c.alibi_slopes = AlibiSlopes(4);
    c.bias = MakeBias({1, 4, 60, 60}, random);
    AttentionCase poisoned = c;
    poisoned.bias.ForEach([&](int64_t, int64_t, int64_t i, int64_t j, float& x) {
      if (j > i) x = poison;
    });
    ExpectPoisonChangesNothing(c, poisoned);
  }
}

TEST_P(AttentionPoison, HiddenCellsStayHiddenUnderHugeAlibi) {
  AttentionCase c = Small(60, 60);
  c.alibi_slopes = {-3e38f, 3e38f, -3e38f, 1};
  c.bias = Buffer<float>({1, 1, 60, 60}, Layout::kDense, -kInf);
  for (int64_t i = 0; i < 60; ++i) c.bias(0, 0, i, i) = 0;  // the distance is 0
  ExpectMatchesReference(c);
}

TEST_P(AttentionPoison, FutureKeysReachOnlyTheRowsThatSeeThem) {
  AttentionCase c = Small(390, 390);
  c.scalars.causal = true;
  for (const int64_t j : {40, 130}) PoisonKey(c, 1, j, kNan);
  ExpectMatchesReference(c);
  const Results r = RunAttention(c);
  EXPECT_TRUE(std::isfinite(r.output(1, 0, 39, 0)));
  EXPECT_TRUE(std::isnan(r.output(1, 0, 40, 0)));
  EXPECT_TRUE(std::isfinite(r.output(0, 0, 389, 0)));
}

TEST_P(AttentionPoison, KeyWhoseScoreIsMinusInfinityIsNotKept) {
  AttentionCase c = Small(390, 390);
  PoisonKey(c, 0, 40, kInf);  // scores of +inf or -inf, after the sign of the query
  ExpectMatchesReference(c);
  c.scalars.causal = true;
  ExpectMatchesReference(c);
}

TEST_P(AttentionPoison, WindowHidesPoisonOnBothSides) {
  AttentionCase c = Small(390, 390);
  c.scalars.window = Window{3, 2};
  for (const int64_t j : {0, 60, 389}) PoisonKey(c, 0, j, kNan);
  ExpectMatchesReference(c);
  const Results r = RunAttention(c);
  EXPECT_TRUE(std::isfinite(r.output(0, 2, 57, 0)));
  EXPECT_TRUE(std::isfinite(r.output(0, 2, 64, 0)));
  EXPECT_FALSE(std::isfinite(r.output(0, 2, 63, 0)));
}

TEST_P(AttentionPoison, NanQueryReachesItsOwnRowOnly) {
  AttentionCase c = Small();
  const Results clean = RunAttention(c);
  c.q(1, 2, 20, 3) = kNan;
  ExpectMatchesReference(c);
  const Results r = RunAttention(c);
  EXPECT_TRUE(std::isnan(r.output(1, 2, 20, 0)));
  EXPECT_TRUE(std::isnan(r.lse(1, 2, 20, 0)));
  EXPECT_EQ(r.output(1, 2, 19, 0), clean.output(1, 2, 19, 0));
  EXPECT_EQ(r.output(1, 3, 20, 0), clean.output(1, 3, 20, 0));
}

TEST_P(AttentionPoison, NanQueryOfAnEmptyRowStaysEmpty) {
  AttentionCase c = Small();
  c.key_lengths = {0, 390};
  for (int64_t d = 0; d < 16; ++d) c.q(0, 1, 4, d) = d % 2 ? kNan : kInf;
  ExpectMatchesReference(c);
  EXPECT_EQ(RunAttention(c).output(0, 1, 4, 0), 0.0f);
}

TEST_P(AttentionPoison, VisibleNanValueReachesItsColumnOnly) {
  AttentionCase c = Small();
  c.v(0, 1, 140, 5) = kNan;
  ExpectMatchesReference(c);
  const Results r = RunAttention(c);
  EXPECT_TRUE(std::isnan(r.output(0, 2, 0, 5)));
  EXPECT_TRUE(std::isfinite(r.output(0, 2, 0, 4)));
  EXPECT_TRUE(std::isfinite(r.output(0, 1, 0, 5)));
}

TEST_P(AttentionPoison, VisibleInfiniteKeysValuesAndBiasMatchReference) {
  AttentionCase value = Small();
  value.v(0, 0, 3, 5) = kInf;
  value.v(0, 0, 140, 6) = -kInf;
  ExpectMatchesReference(value);
  AttentionCase key = Small();
  key.k(1, 1, 130, 2) = kInf;
  ExpectMatchesReference(key);
  AttentionCase bias = Small();
  bias.bias = Buffer<float>({1, 1, 33, 390}, Layout::kDense, 0.0f);
  bias.bias(0, 0, 7, 11) = kInf;
  bias.bias(0, 0, 8, 11) = kNan;
  ExpectMatchesReference(bias);
}

TEST_P(AttentionPoison, MixedVisibilityOfPoisonMatchesReference) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    AttentionCase c = Small(20, 390);
    Random random(seed);
    c.keep = MakeKeep({2, 4, 20, 390}, random, 0.4);
    c.bias = MakeBias({1, 1, 20, 390}, random, 0.5);
    for (int n = 0; n < 3; ++n) {
      const int64_t j = random.Integer(0, 389);
      c.k(random.Integer(0, 1), random.Integer(0, 1), j, 0) = kNan;
      c.v(random.Integer(0, 1), random.Integer(0, 1), random.Integer(0, 389), 3) = kNan;
    }
    ExpectMatchesReference(c);
    if (HasFailure()) return;
  }
}

TEST_P(AttentionPoison, KernelRegressionHidesPoisonToo) {
  for (const Kernel kernel : {Kernel::kGaussian, Kernel::kBoxcar, Kernel::kTriangular,
                              Kernel::kEpanechnikov, Kernel::kConstant}) {
    AttentionCase c = Small();
    c.scalars.score = Score::kSquaredDistance;
    c.scalars.normalize = Normalize::kKernelSum;
    c.scalars.kernel = kernel;
    c.width = {20.0f};
    c.key_lengths = {70, 270};
    for (int64_t j = 270; j < 390; ++j) PoisonKey(c, 1, j, j % 2 ? kNan : kInf);
    ExpectMatchesReference(c);
    for (const float x : RunAttention(c, {.lse = false}).output.Elements()) {
      EXPECT_TRUE(std::isfinite(x));
    }
    c.k(0, 0, 5, 0) = kNan;  // visible
    ExpectMatchesReference(c);
  }
}

}  // namespace
}  // namespace heed::testing
