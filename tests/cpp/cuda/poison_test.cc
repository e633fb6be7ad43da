// What is not kept cannot matter on the device path either, and what is visible and not finite
// reaches its rows only.
#include <cmath>
#include <limits>

#include "device_case.h"
#include "gtest/gtest.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class DevicePoison : public OnDevice {};
HEED_IN_EVERY_TYPE(DevicePoison);

AttentionCase Small(int64_t q_len = 41, int64_t kv_len = 150) {
  return MakeCase({.batch = 2,
                   .num_heads = 4,
                   .num_kv_heads = 2,
                   .q_len = q_len,
                   .kv_len = kv_len,
                   .head_dim = 24,
                   .head_dim_v = 17});
}

void PoisonKey(AttentionCase& c, int64_t b, int64_t j, float poison) {
  for (int64_t h = 0; h < c.sizes.num_kv_heads; ++h) {
    c.k(b, h, j, j % c.sizes.head_dim) = poison;
    c.v(b, h, j, j % c.sizes.head_dim_v) = poison;
  }
}

// With and without poison in keys that nothing sees: the same bits.
void ExpectPoisonChangesNothing(AttentionCase clean, AttentionCase poisoned, DType dtype,
                                int64_t processors = 1) {
  const Results expected = RunDevice(clean, dtype, {.processors = processors});
  const Results actual = RunDevice(poisoned, dtype, {.processors = processors});
  EXPECT_EQ(Bits(expected.output), Bits(actual.output));
  EXPECT_EQ(Bits(expected.lse), Bits(actual.lse));
  ExpectWithinDeviceBounds(poisoned, dtype, actual);
}

TEST_P(DevicePoison, KeysBeyondTheLengthMayBeAnything) {
  for (const float poison : {kNan, kInf, -kInf}) {
    for (const int64_t processors : {1, 64}) {
      AttentionCase c = Small(3, 400);
      c.key_lengths = {70, 390};
      AttentionCase poisoned = c;
      for (int64_t j = 70; j < 400; ++j) PoisonKey(poisoned, 0, j, poison);
      for (int64_t j = 390; j < 400; ++j) PoisonKey(poisoned, 1, j, poison);
      ExpectPoisonChangesNothing(c, poisoned, GetParam(), processors);
    }
  }
}

TEST_P(DevicePoison, KeysThatKeepHidesMayBeAnything) {
  for (const float poison : {kNan, kInf, -kInf}) {
    AttentionCase c = Small();
    c.keep = Buffer<uint8_t>({1, 1, 1, 150}, Layout::kDense, 1);
    AttentionCase poisoned = c;
    for (const int64_t j : {0, 1, 63, 64, 100, 149}) {
      c.keep(0, 0, 0, j) = poisoned.keep(0, 0, 0, j) = 0;
      PoisonKey(poisoned, 0, j, poison);
      PoisonKey(poisoned, 1, j, poison);
    }
    ExpectPoisonChangesNothing(c, poisoned, GetParam());
  }
}

TEST_P(DevicePoison, ABiasOfMinusInfinityHidesAPoisonedKey) {
  for (const float poison : {kNan, kInf, -kInf}) {
    AttentionCase c = Small();
    c.bias = Buffer<float>({1, 1, 1, 150}, Layout::kDense, 0.25f);
    c.bias(0, 0, 0, 77) = -kInf;
    AttentionCase poisoned = c;
    PoisonKey(poisoned, 0, 77, poison);
    PoisonKey(poisoned, 1, 77, poison);
    ExpectPoisonChangesNothing(c, poisoned, GetParam());
  }
}

TEST_P(DevicePoison, BiasOfHiddenCellsMayBeAnything) {
  Random random(2);
  AttentionCase c = Small(60, 60);
  c.scalars.causal = true;
  c.alibi_slopes = AlibiSlopes(4);
  c.bias = MakeBias({1, 4, 60, 60}, random);
  AttentionCase poisoned = c;
  poisoned.bias.ForEach([&](int64_t, int64_t, int64_t i, int64_t j, float& x) {
    if (j > i) x = j % 2 == 0 ? kNan : kInf;
  });
  ExpectPoisonChangesNothing(c, poisoned, GetParam());
}

TEST_P(DevicePoison, FutureKeysReachOnlyTheRowsThatSeeThem) {
  for (const float poison : {kNan, kInf}) {
    for (const bool in_values : {false, true}) {
      AttentionCase c = Small(150, 150);
      c.scalars.causal = true;
      for (const int64_t j : {40, 130}) (in_values ? c.v : c.k)(1, 0, j, 3) = poison;
      ExpectDeviceMatches(c, GetParam());
    }
  }
}

TEST_P(DevicePoison, PoisonedQueriesLoseTheirRowAlone) {
  AttentionCase c = Small();
  c.q(0, 1, 7, 5) = kNan;
  c.q(1, 3, 40, 0) = kInf;
  ExpectDeviceMatches(c, GetParam());
  ExpectDeviceMatches(c, GetParam(), {.processors = 64});
}

TEST_P(DevicePoison, NormalisersWithoutADenominatorKeepItOutToo) {
  for (const Normalize normalize : {Normalize::kSigmoid, Normalize::kAverage}) {
    AttentionCase c = Small();
    c.scalars.normalize = normalize;
    c.key_lengths = {70, 149};
    AttentionCase poisoned = c;
    for (int64_t j = 70; j < 150; ++j) PoisonKey(poisoned, 0, j, kNan);
    ExpectPoisonChangesNothing(c, poisoned, GetParam());
    c.v(0, 0, 3, 4) = kInf;
    ExpectDeviceMatches(c, GetParam());
  }
}

}  // namespace
}  // namespace heed::testing
