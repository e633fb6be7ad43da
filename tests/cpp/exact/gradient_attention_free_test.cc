// Gradients of the attention-free transformer against central differences of the float64 oracle.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attention_case.h"
#include "backward_case.h"
#include "composed_case.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class FreeGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(FreeGradient);

ComposedCase MakeFree(const Sizes& sizes, uint64_t seed = 1, Layout layout = Layout::kDense) {
  return {
      .id = "attention_free", .inner = MakeCase(sizes, seed, layout), .extras = {}, .params = {}};
}

// Every option: few rows, some of them empty.
std::vector<ComposedCase> SmallCases() {
  Random random(2);
  const Sizes grouped = {2, 4, 2, 5, 6, 3, 3};
  std::vector<ComposedCase> cases = {MakeFree({1, 1, 1, 1, 1, 1, 1}),         MakeFree(grouped, 2),
                                     MakeFree(grouped, 3, Layout::kBlhd),     MakeFree(grouped, 4),
                                     MakeFree(grouped, 5, Layout::kReversed), MakeFree(grouped, 6)};
  cases[2].inner.bias = MakeBias({1, 4, 5, 6}, random, 0.2);
  cases[2].params = {{"local_window", 2.0}, {"query_offset", 1.0}};
  cases[3].inner.bias = MakeBias({1, 1, 1, 6}, random);
  cases[3].inner.key_lengths = {4, 0};
  cases[4].inner.scalars.causal = true;
  cases[4].inner.scalars.query_offset = QueryOffset::At(-2);
  cases[5].inner.keep = MakeKeep({2, 1, 5, 6}, random, 0.3);
  cases[5].inner.bias = MakeBias({2, 1, 5, 6}, random);
  return cases;
}

TEST_P(FreeGradient, MatchesDifferencesOfReference) {
  for (const ComposedCase& c : SmallCases()) {
    ExpectElementsMatch(c.request(), kComposedGradientMaxError, c.Describe());
  }
}

TEST_P(FreeGradient, MatchesAlongDirections) {
  Random random(3);
  ComposedCase causal = MakeFree({1, 2, 1, 90, 90, 67, 67}, 7), biased = causal, window = causal;
  causal.inner.scalars.causal = true;
  biased.inner.bias = MakeBias({1, 2, 90, 90}, random);
  window.inner.scalars.window = Window{20, 3};
  ComposedCase lengths = MakeFree({2, 2, 1, 40, 300, 9, 9}, 8);
  lengths.inner.key_lengths = {300, 270};
  // Sums over thousands of keys, and over thousands of queries.
  ComposedCase many_keys = MakeFree({1, 1, 1, 3, 3000, 5, 5}, 16), many_queries = many_keys;
  many_keys.inner.bias = MakeBias({1, 1, 3, 3000}, random);
  many_queries = MakeFree({1, 1, 1, 3000, 3, 5, 5}, 17);
  for (const ComposedCase& c : {causal, biased, window, lengths, many_keys, many_queries}) {
    ExpectDirectionsMatch(c.request(), kComposedGradientMaxError, c.Describe());
  }
}

// Widths around whole vectors of channels, heads that share keys, rows that start without keys.
TEST_P(FreeGradient, MatchesForAnyWidth) {
  Random random(6);
  for (const int64_t width : {1, 4, 16, 17, 33}) {
    ComposedCase growing = MakeFree({2, 4, 2, 7, 9, width, width}, 13), pairs = growing;
    growing.inner.scalars.causal = true;
    growing.inner.scalars.query_offset = QueryOffset::At(-2);
    growing.inner.key_lengths = {9, 3};
    pairs.inner.bias = MakeBias({1, 4, 7, 9}, random);
    for (const ComposedCase& c : {growing, pairs}) {
      ExpectDirectionsMatch(c.request(), kComposedGradientMaxError, c.Describe());
    }
  }
}

TEST_P(FreeGradient, LargeKeysNeitherOverflowNorVanish) {
  ComposedCase c = MakeFree({1, 1, 1, 6, 6, 2, 2}, 9);
  for (int64_t j = 0; j < 6; ++j) c.inner.k(0, 0, j, 0) *= 60;
  for (const bool causal : {false, true}) {
    c.inner.scalars.causal = causal;
    ExpectElementsMatch(c.request(), kComposedGradientMaxError, c.Describe());
  }
}

TEST_P(FreeGradient, SameBitsForAnyNumberOfThreads) {
  Random random(4);
  ComposedCase c = MakeFree({2, 4, 2, 70, 80, 9, 9}, 10);
  ExpectSameGradientsForAnyThreads(c.request(), c.Describe());
  c.inner.bias = MakeBias({1, 4, 70, 80}, random);
  ExpectSameGradientsForAnyThreads(c.request(), c.Describe());
}

// Key 2 is hidden, query 1 sees nothing; both are NaN, and so is what arrives at query 1.
TEST_P(FreeGradient, WhatIsHiddenReachesNothing) {
  Random random(5);
  ComposedCase c = MakeFree({1, 1, 1, 3, 4, 2, 2}, 11);
  AttentionCase& inner = c.inner;
  inner.bias = MakeBias({1, 1, 3, 4}, random);
  inner.keep = MakeKeep({1, 1, 3, 4}, random, 1);
  for (int64_t i = 0; i < 3; ++i) inner.keep(0, 0, i, 2) = 0;
  for (int64_t j = 0; j < 4; ++j) inner.bias(0, 0, 1, j) = -kInf;
  inner.bias(0, 0, 0, 2) = kNan;
  for (int64_t d = 0; d < 2; ++d) {
    inner.k(0, 0, 2, d) = inner.v(0, 0, 2, d) = inner.q(0, 0, 1, d) = kNan;
  }
  const Request request = c.request();
  Backward backward(request);
  for (int64_t d = 2; d < 4; ++d) backward.d_results.values(0)[static_cast<size_t>(d)] = kNan;
  backward.Run(request);
  for (const auto& [name, values] : backward.gradients.ByName()) {
    for (const double x : values) EXPECT_TRUE(std::isfinite(x)) << name;
    EXPECT_EQ(values[name == "k" || name == "v" ? 4 : 2], 0) << name;
  }
}

// The same where rows see more and more keys: keys 3 to 5 are beyond the length, queries 0 and 1
// stand before the first key.
TEST_P(FreeGradient, WhatIsBeyondLengthsReachesNothing) {
  ComposedCase c = MakeFree({1, 2, 1, 6, 6, 5, 5}, 14);
  AttentionCase& inner = c.inner;
  inner.scalars.causal = true;
  inner.scalars.query_offset = QueryOffset::At(-2);
  inner.key_lengths = {3};
  for (int64_t d = 0; d < 5; ++d) {
    for (int64_t j = 3; j < 6; ++j) inner.k(0, 0, j, d) = inner.v(0, 0, j, d) = kNan;
    for (int64_t i = 0; i < 2; ++i) inner.q(0, 1, i, d) = kNan;
  }
  const Request request = c.request();
  Backward backward(request);
  std::fill_n(backward.d_results.values(0).begin(), 10, kNan);
  backward.Run(request);
  const Values gradients = backward.gradients.ByName();
  for (const auto& [name, values] : gradients) {
    for (const double x : values) EXPECT_TRUE(std::isfinite(x)) << name;
  }
  for (size_t n = 0; n < 10; ++n) EXPECT_EQ(gradients.at("q")[n], 0);
  for (size_t n = 15; n < 30; ++n) {
    EXPECT_EQ(gradients.at("k")[n], 0);
    EXPECT_EQ(gradients.at("v")[n], 0);
  }
}

// A key of -inf is not there in that channel, whatever its value is.
TEST_P(FreeGradient, KeysOfMinusInfinityReachNothing) {
  Random random(7);
  for (const bool biased : {false, true}) {
    ComposedCase c = MakeFree({1, 1, 1, 5, 5, 3, 3}, 15);
    c.inner.scalars.causal = true;
    if (biased) c.inner.bias = MakeBias({1, 1, 5, 5}, random);
    for (const int64_t j : {0, 1, 3}) {
      c.inner.k(0, 0, j, 1) = -kInf;
      c.inner.v(0, 0, j, 1) = kNan;
    }
    Backward backward(c.request());
    const Values gradients = backward.gradients.ByName();
    for (const auto& [name, values] : gradients) {
      for (const double x : values) EXPECT_TRUE(std::isfinite(x)) << name;
    }
    for (const size_t j : {0, 1, 3}) {
      EXPECT_EQ(gradients.at("k")[3 * j + 1], 0);
      EXPECT_EQ(gradients.at("v")[3 * j + 1], 0);
    }
    EXPECT_EQ(gradients.at("q")[1], 0);
    EXPECT_EQ(gradients.at("q")[4], 0);
  }
}

// Keys of one channel at which a query is NaN reach what sees them, and no other.
TEST_P(FreeGradient, NanReachesWhatSeesIt) {
  ComposedCase c = MakeFree({1, 1, 1, 4, 4, 1, 1}, 12);
  c.inner.scalars.causal = true;
  c.inner.k(0, 0, 2, 0) = kNan;
  Backward backward(c.request());
  const Values gradients = backward.gradients.ByName();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(std::isnan(gradients.at("q")[i]), i >= 2) << i;
    // Queries 2 and 3 see keys 0 to 2; key 3 is seen by a query that sees key 2.
    EXPECT_TRUE(std::isnan(gradients.at("k")[i])) << i;
    EXPECT_TRUE(std::isnan(gradients.at("v")[i])) << i;
  }
}

}  // namespace
}  // namespace heed::testing
