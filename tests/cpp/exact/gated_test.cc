// Gated attention: against the oracle, its limits, and numbers from its definition.
#include <cmath>
#include <limits>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/compose.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class Gated : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Gated);

ComposedCase MakeGated(AttentionCase inner, bool per_element = true) {
  ComposedCase c{.id = "gated", .inner = std::move(inner), .extras = {}, .params = {}};
  const Sizes& sizes = c.inner.sizes;
  c.AddNormal("output_gate",
              {sizes.batch, sizes.num_heads, sizes.q_len, per_element ? sizes.head_dim_v : 1});
  for (float& x : c.extra("output_gate").values) x *= 10;
  return c;
}

TEST_P(Gated, MatchesReference) {
  for (const AttentionCase& inner : PassThroughCases()) {
    for (const bool per_element : {true, false}) {
      ExpectComposedMatches(MakeGated(inner, per_element), 1.5);
    }
  }
}

TEST_P(Gated, GateBroadcastsOverBatchHeadsAndQueries) {
  ComposedCase c = MakeGated(PassThroughCases()[1]);
  c.extras.clear();
  c.AddNormal("output_gate", {1, 1, 1, 17});
  ExpectComposedMatches(c, 1.5);
  c.extras.clear();
  c.AddNormal("output_gate", {1, 4, 1, 1});
  ExpectComposedMatches(c, 1.5);
}

TEST_P(Gated, GivesTheNumbersOfItsDefinition) {
  // Two equal keys: the mean of the values, times sigmoid: 1/2 at 0, 3/4 at ln 3, 1/4 at -ln 3.
  RequestBuilder builder("gated");
  builder.Floats("q", {1, 1, 1, 1}, {1})
      .Floats("k", {1, 1, 2, 1}, {1, 1})
      .Floats("v", {1, 1, 2, 3}, {2, 4, 8, 6, 4, 0})
      .Floats("output_gate", {1, 1, 1, 3}, {0, std::log(3.0f), -std::log(3.0f)});
  ExpectAllNear(RunByName(builder.request()).at("output"), {2, 3, 1}, 1e-6);
}

TEST_P(Gated, ReducesToScaledDotProductWithOpenGates) {
  AttentionCase inner = PassThroughCases()[1];
  ComposedCase c = MakeGated(inner);
  for (const float open : {kInf, 200.0f, 20.0f}) {
    for (float& x : c.extra("output_gate").values) x = open;
    const std::vector<float> plain = RunAttention(inner).output.Elements();
    const std::vector<double> gated = RunByName(c.request()).at("output");
    EXPECT_EQ(gated, std::vector<double>(plain.begin(), plain.end()));
  }
  for (float& x : c.extra("output_gate").values) x = -kInf;
  const std::vector<double> output = RunByName(c.request()).at("output");
  for (const double x : output) EXPECT_EQ(x, 0.0);
}

TEST_P(Gated, TypedCallTakesStridedGates) {
  AttentionCase inner = PassThroughCases()[1];
  Buffer<float> gate({2, 4, 37, 17}, Layout::kBlhd, kNan);
  Random random(8);
  gate.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x = random.Normal(); });
  ComposedCase c = MakeGated(inner);
  c.extra("output_gate").values = gate.Elements();
  Buffer<float> output({2, 4, 37, 17}, Layout::kPadded, kNan);
  GatedAttention(inner.q.view(), inner.k.view(), inner.v.view(), gate.view(), inner.options(),
                 {.output = output.view()});
  EXPECT_TRUE(output.GapsAreUntouched());
  const std::vector<float> elements = output.Elements();
  EXPECT_EQ(std::vector<double>(elements.begin(), elements.end()),
            RunByName(c.request()).at("output"));
}

TEST_P(Gated, EmptyRowStaysZeroBehindAnyGate) {
  ComposedCase c = MakeGated(MakeCase({.batch = 2, .q_len = 9, .kv_len = 30, .head_dim_v = 17}));
  c.inner.key_lengths = {0, 30};
  for (size_t n = 0; n < 2 * 9 * 17; ++n) c.extra("output_gate").values[n] = n % 2 ? kNan : kInf;
  const std::vector<double> output = RunByName(c.request()).at("output");
  for (size_t n = 0; n < 2 * 9 * 17; ++n) EXPECT_EQ(output[n], 0.0);
  ExpectComposedMatches(c, 1.5);
}

TEST_P(Gated, NanGateReachesItsElementOnlyAndMaskedKeysNothing) {
  ComposedCase c = MakeGated(MakeCase({.q_len = 9, .kv_len = 30, .head_dim_v = 17}));
  c.inner.key_lengths = {20};
  const std::vector<double> clean = RunByName(c.request()).at("output");
  c.extra("output_gate").values[100] = kNan;
  for (int64_t j = 20; j < 30; ++j) c.inner.k(0, 0, j, 1) = c.inner.v(0, 1, j, 2) = kNan;
  const std::vector<double> output = RunByName(c.request()).at("output");
  for (size_t n = 0; n < output.size(); ++n) {
    if (n == 100) {
      EXPECT_TRUE(std::isnan(output[n]));
    } else {
      EXPECT_EQ(output[n], clean[n]) << n;
    }
  }
}

TEST_P(Gated, ThreadsChangeNoBit) {
  ComposedCase c = MakeGated(PassThroughCases()[3]);
  c.params.push_back({"return_lse", true});
  ExpectSameBitsForAnyThreads(c.request());
}

TEST_P(Gated, BadGatesAreRefused) {
  ComposedCase c = MakeGated(MakeCase({.q_len = 3, .kv_len = 3, .head_dim = 4, .head_dim_v = 4}));
  c.extras.clear();
  ExpectBothRefuse(c.request(), ErrorCode::kOption, "output_gate");
  c.AddNormal("output_gate", {1, 2, 3, 5});
  ExpectBothRefuse(c.request(), ErrorCode::kShape, "output_gate");
}

}  // namespace
}  // namespace heed::testing
