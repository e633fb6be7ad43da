// Relations that hold between different problems, whatever the numbers are.
#include <cmath>
#include <limits>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class AttentionProperties : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AttentionProperties);

const Sizes kSizes{.batch = 2,
                   .num_heads = 4,
                   .num_kv_heads = 2,
                   .q_len = 40,
                   .kv_len = 390,
                   .head_dim = 16,
                   .head_dim_v = 12};

// Two results of equal problems, each within kAttentionMaxError of the truth; |v| stays below 5.
void ExpectClose(const Buffer<float>& a, const Buffer<float>& b) {
  const std::vector<float> x = a.Elements(), y = b.Elements();
  ExpectWithin(x, std::vector<double>(y.begin(), y.end()),
               std::vector<double>(y.size(), 2 * 5 * kAttentionMaxError), "results");
}

TEST_P(AttentionProperties, OrderOfKeysDoesNotMatter) {
  AttentionCase c = MakeCase(kSizes);
  Random random(1);
  c.bias = MakeBias({1, 4, 1, 390}, random, 0.2);
  AttentionCase shuffled = c;
  const auto source = [](int64_t j) { return j * 37 % 390; };
  shuffled.k.ForEach(
      [&](int64_t b, int64_t h, int64_t j, int64_t d, float& x) { x = c.k(b, h, source(j), d); });
  shuffled.v.ForEach(
      [&](int64_t b, int64_t h, int64_t j, int64_t d, float& x) { x = c.v(b, h, source(j), d); });
  shuffled.bias.ForEach(
      [&](int64_t, int64_t h, int64_t, int64_t j, float& x) { x = c.bias(0, h, 0, source(j)); });
  ExpectClose(RunAttention(c).output, RunAttention(shuffled).output);
}

TEST_P(AttentionProperties, CausalRowEqualsItsPrefix) {
  const AttentionCase plain = MakeCase({.q_len = 390, .kv_len = 390, .head_dim = 16});
  AttentionCase causal = plain;
  causal.scalars.causal = true;
  const Results r = RunAttention(causal);
  for (const int64_t i : {0, 1, 62, 64, 255, 256, 389}) {
    AttentionCase prefix = plain;
    prefix.key_lengths = {static_cast<int32_t>(i + 1)};
    const Results p = RunAttention(prefix);
    for (int64_t d = 0; d < 64; ++d) {
      EXPECT_NEAR(r.output(0, 1, i, d), p.output(0, 1, i, d), 1e-5);
    }
  }
}

TEST_P(AttentionProperties, WindowOfTheWholeLengthIsNone) {
  AttentionCase c = MakeCase({.q_len = 390, .kv_len = 390, .head_dim = 16});
  const Results plain = RunAttention(c);
  c.scalars.window = Window{389, 389};
  EXPECT_EQ(Bits(plain.output), Bits(RunAttention(c).output));
}

TEST_P(AttentionProperties, WindowWithoutFutureIsCausal) {
  AttentionCase c = MakeCase({.q_len = 390, .kv_len = 390, .head_dim = 16});
  c.scalars.causal = true;
  const Results causal = RunAttention(c);
  c.scalars.causal = false;
  c.scalars.window = Window{389, 0};
  EXPECT_EQ(Bits(causal.output), Bits(RunAttention(c).output));
}

TEST_P(AttentionProperties, ValuesOfOneGiveOne) {
  AttentionCase c = MakeCase(kSizes);
  c.v.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = 1; });
  for (const float x : RunAttention(c).output.Elements()) {
    EXPECT_NEAR(x, 1.0f, kAttentionMaxError);
  }
}

TEST_P(AttentionProperties, OutputStaysWithinTheValues) {
  const AttentionCase c = MakeCase(kSizes);
  const Results r = RunAttention(c);
  for (int64_t d = 0; d < 12; ++d) {
    float low = kInf, high = -kInf;
    for (int64_t j = 0; j < 390; ++j) {
      low = std::min(low, c.v(1, 1, j, d));
      high = std::max(high, c.v(1, 1, j, d));
    }
    for (int64_t i = 0; i < 40; ++i) {
      EXPECT_GE(r.output(1, 3, i, d), low - 1e-5);
      EXPECT_LE(r.output(1, 3, i, d), high + 1e-5);
    }
  }
}

TEST_P(AttentionProperties, OneKeyGivesItsValueExactly) {
  AttentionCase c = MakeCase({.q_len = 9, .kv_len = 1, .head_dim = 16, .head_dim_v = 12});
  const Results r = RunAttention(c);
  for (int64_t i = 0; i < 9; ++i) {
    for (int64_t d = 0; d < 12; ++d) EXPECT_EQ(r.output(0, 1, i, d), c.v(0, 1, 0, d));
  }
}

TEST_P(AttentionProperties, GroupedHeadsEqualRepeatedHeads) {
  const AttentionCase grouped = MakeCase(kSizes);
  Sizes repeated_sizes = kSizes;
  repeated_sizes.num_kv_heads = 4;
  AttentionCase repeated = MakeCase(repeated_sizes);
  repeated.q = grouped.q;
  repeated.k.ForEach(
      [&](int64_t b, int64_t h, int64_t j, int64_t d, float& x) { x = grouped.k(b, h / 2, j, d); });
  repeated.v.ForEach(
      [&](int64_t b, int64_t h, int64_t j, int64_t d, float& x) { x = grouped.v(b, h / 2, j, d); });
  EXPECT_EQ(Bits(RunAttention(grouped).output), Bits(RunAttention(repeated).output));
}

TEST_P(AttentionProperties, KeepEqualsABiasOfZeroAndMinusInfinity) {
  AttentionCase keep = MakeCase(kSizes);
  Random random(6);
  keep.keep = MakeKeep({2, 4, 40, 390}, random, 0.5);
  AttentionCase bias = MakeCase(kSizes);
  bias.bias = Buffer<float>({2, 4, 40, 390}, Layout::kDense, 0.0f);
  bias.bias.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t j, float& x) {
    x = keep.keep(b, h, i, j) != 0 ? 0.0f : -kInf;
  });
  ExpectClose(RunAttention(keep).output, RunAttention(bias).output);
}

TEST_P(AttentionProperties, ScaleMayMoveIntoTheQueries) {
  AttentionCase c = MakeCase(kSizes);
  c.scalars.scale = 0.25;
  const Results expected = RunAttention(c);
  c.q.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x *= 0.25f; });
  c.scalars.scale = 1.0;
  EXPECT_EQ(Bits(expected.output), Bits(RunAttention(c).output));
}

TEST_P(AttentionProperties, AConstantInEveryLogitChangesOnlyLse) {
  AttentionCase c = MakeCase(kSizes);
  const Results expected = RunAttention(c);
  c.bias = Buffer<float>({1, 1, 1, 1}, Layout::kDense, 3.0f);
  const Results r = RunAttention(c);
  ExpectClose(expected.output, r.output);
  EXPECT_NEAR(r.lse(1, 2, 7, 0), expected.lse(1, 2, 7, 0) + 3, 1e-5);
}

TEST_P(AttentionProperties, SoftcapSoHighIsNone) {
  AttentionCase c = MakeCase(kSizes);
  const Results expected = RunAttention(c);
  c.scalars.softcap = 1e5;
  ExpectClose(expected.output, RunAttention(c).output);
}

TEST_P(AttentionProperties, ZeroSlopesAndMinusInfinitySinksAreNone) {
  AttentionCase c = MakeCase({.q_len = 40, .kv_len = 40});
  const Results expected = RunAttention(c);
  c.alibi_slopes = {0, 0};
  c.sinks = {-kInf, -kInf};
  ExpectClose(expected.output, RunAttention(c).output);
}

TEST_P(AttentionProperties, DoublingKeysAndValuesChangesOnlyLse) {
  const AttentionCase c = MakeCase(kSizes);
  Sizes sizes = kSizes;
  sizes.kv_len = 780;
  AttentionCase twice = MakeCase(sizes);
  twice.q = c.q;
  twice.k.ForEach(
      [&](int64_t b, int64_t h, int64_t j, int64_t d, float& x) { x = c.k(b, h, j % 390, d); });
  twice.v.ForEach(
      [&](int64_t b, int64_t h, int64_t j, int64_t d, float& x) { x = c.v(b, h, j % 390, d); });
  const Results once = RunAttention(c), doubled = RunAttention(twice);
  ExpectClose(once.output, doubled.output);
  EXPECT_NEAR(doubled.lse(0, 0, 0, 0), once.lse(0, 0, 0, 0) + std::log(2.0), 1e-5);
}

// The part of a case with keys [begin, end).
AttentionCase KeyRangeOf(const AttentionCase& c, int64_t begin, int64_t end) {
  Sizes sizes = c.sizes;
  sizes.kv_len = end - begin;
  AttentionCase part = MakeCase(sizes);
  part.q = c.q;
  part.k.ForEach(
      [&](int64_t b, int64_t h, int64_t j, int64_t d, float& x) { x = c.k(b, h, begin + j, d); });
  part.v.ForEach(
      [&](int64_t b, int64_t h, int64_t j, int64_t d, float& x) { x = c.v(b, h, begin + j, d); });
  return part;
}

TEST_P(AttentionProperties, PartsOfTheKeysMergeThroughLse) {
  const AttentionCase c = MakeCase(kSizes);
  const Results whole = RunAttention(c);
  for (const int64_t split : {0, 1, 64, 389}) {
    const Results a = RunAttention(KeyRangeOf(c, 0, split));
    const Results b = RunAttention(KeyRangeOf(c, split, 390));
    for (int64_t i = 0; i < 40; ++i) {
      const double lse_a = a.lse(1, 2, i, 0), lse_b = b.lse(1, 2, i, 0);
      const double top = std::max(lse_a, lse_b);
      const double lse = top + std::log(std::exp(lse_a - top) + std::exp(lse_b - top));
      EXPECT_NEAR(whole.lse(1, 2, i, 0), lse, 4e-6);
      for (int64_t d = 0; d < 12; ++d) {
        const double merged = std::exp(lse_a - lse) * a.output(1, 2, i, d) +
                              std::exp(lse_b - lse) * b.output(1, 2, i, d);
        EXPECT_NEAR(whole.output(1, 2, i, d), merged, 2e-5);
      }
    }
  }
}

TEST_P(AttentionProperties, WeightsSumToOneAndMakeTheOutput) {
  const AttentionCase c = MakeCase(kSizes);
  const Results r = RunAttention(c, {.weights = true});
  for (int64_t i = 0; i < 40; ++i) {
    double sum = 0, mean = 0;
    for (int64_t j = 0; j < 390; ++j) {
      sum += r.weights(1, 3, i, j);
      mean += static_cast<double>(r.weights(1, 3, i, j)) * c.v(1, 1, j, 4);
    }
    EXPECT_NEAR(sum, 1.0, 0x1p-24 * (390 + 8));
    EXPECT_NEAR(r.output(1, 3, i, 4), mean, 1e-5);
  }
}

}  // namespace
}  // namespace heed::testing
