// Attention-free transformer: against the oracle, its limits, and numbers from its definition.
#include "heed/attention_free.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class AttentionFreeMeans : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AttentionFreeMeans);

// The pass-through cases without what acts on scores; channels of v are those of k.
std::vector<ComposedCase> Cases() {
  std::vector<ComposedCase> cases;
  for (AttentionCase inner : PassThroughCases(17)) {
    inner.scalars.softcap.reset();
    inner.alibi_slopes.clear();
    inner.sinks.clear();
    cases.push_back({.id = "attention_free", .inner = inner, .extras = {}, .params = {}});
  }
  return cases;
}

// |k + w| stays below 16.
void ExpectFreeMatches(const ComposedCase& c) {
  const std::vector<double> expected = RunOracle(c.request()).at("output");
  const std::vector<double> actual = RunByName(c.request()).at("output");
  double max_v = 0;
  for (const float x : c.inner.v.Elements()) {
    if (std::isfinite(x)) max_v = std::max(max_v, std::abs(double{x}));
  }
  const std::vector<float> floats(actual.begin(), actual.end());
  ExpectWithin(floats, expected,
               std::vector<double>(expected.size(), kAttentionFreeMaxError * max_v), c.Describe());
}

TEST_P(AttentionFreeMeans, SimpleMatchesReference) {
  for (ComposedCase& c : Cases()) {
    c.inner.bias = {};
    ExpectFreeMatches(c);
  }
}

TEST_P(AttentionFreeMeans, FullAndLocalMatchReference) {
  Random random(6);
  for (ComposedCase& c : Cases()) {
    const Sizes& s = c.inner.sizes;
    c.inner.bias = MakeBias({1, s.num_heads, s.q_len, s.kv_len}, random, 0.1);
    ExpectFreeMatches(c);
    if (c.inner.scalars.query_offset.kind() == QueryOffset::Kind::kUnset) {
      c.inner.scalars.query_offset = QueryOffset::At(3);
    }
    c.params.push_back({"local_window", 5.0});
    ExpectFreeMatches(c);
  }
}

TEST_P(AttentionFreeMeans, LongSequencesMatchReference) {
  ComposedCase c{.id = "attention_free",
                 .inner = MakeCase({.q_len = 3000, .kv_len = 3000, .head_dim = 2, .head_dim_v = 2}),
                 .extras = {},
                 .params = {}};
  c.inner.scalars.causal = true;
  ExpectFreeMatches(c);
}

TEST_P(AttentionFreeMeans, GivesTheNumbersOfItsDefinition) {
  // Weights exp(k): channel 0: 2 and 1, channel 1: 1 and 1. sigmoid(q): 1/2 and 3/4.
  RequestBuilder builder("attention_free");
  builder.Floats("q", {1, 1, 1, 2}, {0, std::log(3.0f)})
      .Floats("k", {1, 1, 2, 2}, {std::log(2.0f), 0, 0, 0})
      .Floats("v", {1, 1, 2, 2}, {10, 20, 20, 4});
  // With w = (0, ln 3): channel 0: 2 and 3, channel 1: 1 and 3.
  const float w[] = {0, std::log(3.0f)};
  RequestBuilder biased("attention_free");
  biased.Floats("q", {1, 1, 1, 2}, {0, std::log(3.0f)})
      .Floats("k", {1, 1, 2, 2}, {std::log(2.0f), 0, 0, 0})
      .Floats("v", {1, 1, 2, 2}, {10, 20, 20, 4})
      .Floats("bias", {1, 2}, {w[0], w[1]});
  ExpectAllNear(RunByName(builder.request()).at("output"), {40 / 3.0 / 2, 12 * 0.75}, 1e-5);
  ExpectAllNear(RunByName(biased.request()).at("output"), {16 / 2.0, 8 * 0.75}, 1e-5);
}

TEST_P(AttentionFreeMeans, SimpleReducesToScaledDotProductOfOneChannel) {
  // One channel is softmax attention whose scores are its keys: query 1, scale 1.
  AttentionCase c = MakeCase({.q_len = 40, .kv_len = 40, .head_dim = 1, .head_dim_v = 1});
  c.scalars.causal = true;
  c.scalars.scale = 1;
  ComposedCase free{.id = "attention_free", .inner = c, .extras = {}, .params = {}};
  free.inner.scalars.scale.reset();
  free.inner.q.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = HUGE_VALF; });
  c.q.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = 1; });
  const std::vector<float> plain = RunAttention(c).output.Elements();
  ExpectAllNear(RunByName(free.request()).at("output"), {plain.begin(), plain.end()}, 1e-5);
}

TEST_P(AttentionFreeMeans, FullWithoutBiasIsSimple) {
  ComposedCase c = Cases()[1];
  const std::vector<double> simple = RunByName(c.request()).at("output");
  c.inner.bias = Buffer<float>({1, 1, 1, 1}, Layout::kDense, 0.0f);
  ExpectAllNear(RunByName(c.request()).at("output"), simple, 1e-5);
}

TEST_P(AttentionFreeMeans, HugeKeysDoNotOverflow) {
  ComposedCase c = Cases()[1];
  const std::vector<double> plain = RunByName(c.request()).at("output");
  c.inner.k.ForEach(
      [](int64_t, int64_t, int64_t, int64_t, float& x) { x = std::round(x * 4) + 8192; });
  const std::vector<double> high = RunByName(c.request()).at("output");
  c.inner.k.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x -= 16384; });
  EXPECT_EQ(RunByName(c.request()).at("output"), high);  // exact differences: the same bits
  for (const double x : high) EXPECT_TRUE(std::isfinite(x));
  EXPECT_NE(plain, high);
}

TEST_P(AttentionFreeMeans, EmptyRowIsZeroAndWhatIsMaskedCannotMatter) {
  for (const bool with_bias : {false, true}) {
    ComposedCase c = Cases()[1];
    Random random(2);
    if (with_bias) c.inner.bias = MakeBias({1, 1, 37, 300}, random);
    c.inner.key_lengths = {0, 200};
    const std::vector<double> clean = RunByName(c.request()).at("output");
    for (size_t n = 0; n < clean.size() / 2; ++n) EXPECT_EQ(clean[n], 0.0);
    for (int64_t j = 200; j < 300; ++j) c.inner.k(1, 0, j, 1) = c.inner.v(1, 1, j, 2) = kNan;
    c.inner.q(0, 0, 3, 3) = kNan;  // an empty row
    EXPECT_EQ(RunByName(c.request()).at("output"), clean);
  }
}

TEST_P(AttentionFreeMeans, NanReachesItsChannelOnlyAndMatchesReference) {
  for (const bool with_bias : {false, true}) {
    ComposedCase c = Cases()[2];
    Random random(2);
    if (with_bias) c.inner.bias = MakeBias({1, 1, 70, 70}, random, 0.2);
    c.inner.k(0, 1, 30, 4) = kNan;
    c.inner.v(1, 2, 60, 5) = kNan;
    c.inner.k(1, 0, 20, 6) = -HUGE_VALF;
    c.inner.v(1, 0, 20, 6) = kNan;  // not there
    c.inner.k(1, 0, 25, 7) = HUGE_VALF;
    ExpectFreeMatches(c);
    const std::vector<double> output = RunByName(c.request()).at("output");
    EXPECT_TRUE(std::isnan(output[static_cast<size_t>((70 + 69) * 17 + 4)]));
    EXPECT_TRUE(std::isfinite(output[static_cast<size_t>((70 + 69) * 17 + 3)]));
    EXPECT_TRUE(std::isfinite(output[static_cast<size_t>((70 + 29) * 17 + 4)]));  // causal
  }
}

TEST_P(AttentionFreeMeans, ThreadsChangeNoBit) {
  for (const ComposedCase& c : Cases()) ExpectSameBitsForAnyThreads(c.request());
}

TEST_P(AttentionFreeMeans, BadArgumentsAreRefused) {
  ComposedCase c = Cases()[0];
  c.params.push_back({"local_window", 0.0});
  ExpectBothRefuse(c.request(), ErrorCode::kRange, "local_window");
  ComposedCase far = Cases()[1];
  far.params.push_back({"local_window", 2.0});
  ExpectBothRefuse(far.request(), ErrorCode::kOption, "query_offset");
  ComposedCase wide = Cases()[0];
  wide.inner = MakeCase({.q_len = 2, .kv_len = 2, .head_dim = 3, .head_dim_v = 4});
  ExpectBothRefuse(wide.request(), ErrorCode::kShape, "head_dim");
  AttentionFreeOptions options;
  options.attention.softcap = 2;
  Buffer<float> x({1, 1, 2, 2}, Layout::kDense, 0), output({1, 1, 2, 2}, Layout::kDense, 0);
  EXPECT_THROW(AttentionFree(x.view(), x.view(), x.view(), options, output.view()), Error);
  EXPECT_THROW(AttentionFree(x.view(), x.view(), x.view(), {}, x.view()), Error);
}

}  // namespace
}  // namespace heed::testing
