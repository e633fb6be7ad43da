// Synthesizers: against the oracle, their limits, and numbers from their definition.
#include <cmath>
#include <limits>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/compose.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Synthesizer : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Synthesizer);

// The pass-through cases that make sense here: a KV head for each head, or one for all. Learned
// tensors reach 5 further than they must.
std::vector<ComposedCase> Cases(bool dense) {
  std::vector<ComposedCase> cases;
  for (const AttentionCase& inner : PassThroughCases()) {
    const Sizes& s = inner.sizes;
    if (s.num_kv_heads != 1 && s.num_kv_heads != s.num_heads) continue;
    if (!dense && (s.q_len != s.kv_len || inner.scalars.softcap || inner.bias.has_value()))
      continue;
    ComposedCase c{.id = "synthesizer", .inner = inner, .extras = {}, .params = {}};
    if (dense) {
      c.AddNormal("synthetic_keys", {s.num_heads, s.kv_len + 5, s.head_dim}, 3);
      c.AddNormal("synthetic_bias", {s.num_heads, s.kv_len + 5}, 4);
      for (float& x : c.extra("synthetic_keys").values) x /= 5;
    } else {
      c.AddNormal("synthetic_scores", {s.num_heads, s.kv_len + 5, s.kv_len + 5}, 3);
    }
    cases.push_back(c);
  }
  return cases;
}

// Without the inputs that synthesizers do not have.
Request Strip(const ComposedCase& c, bool dense) {
  Request request = c.request();
  std::erase_if(request.inputs, [dense](const NamedTensor& input) {
    return input.name == "k" || (!dense && input.name == "q");
  });
  return request;
}

void ExpectSynthesizerMatches(Request request) {
  for (const char* flag : {"return_weights", "return_lse"}) request.params.push_back({flag, true});
  const Values expected = RunOracle(request), actual = RunByName(request);
  // |v| < 5, and logits stay below 16.
  const std::pair<const char*, double> bounds[] = {
      {"output", 5 * kAttentionMaxError}, {"weights", kAttentionMaxError}, {"lse", 8e-6}};
  for (const auto& [name, bound] : bounds) {
    const std::vector<float> floats(actual.at(name).begin(), actual.at(name).end());
    const std::vector<double>& values = expected.at(name);
    ExpectWithin(floats, values, std::vector<double>(values.size(), bound), name);
  }
}

TEST_P(Synthesizer, DenseMatchesReference) {
  ASSERT_GE(Cases(true).size(), 4u);
  for (ComposedCase& c : Cases(true)) {
    ExpectSynthesizerMatches(Strip(c, true));
    c.extras[0].values.resize(static_cast<size_t>(c.extras[0].shape[1] * c.extras[0].shape[2]));
    c.extras[0].shape[0] = 1;  // the same for every head
    c.extras.pop_back();       // no bias
    ExpectSynthesizerMatches(Strip(c, true));
  }
}

TEST_P(Synthesizer, RandomMatchesReference) {
  ASSERT_GE(Cases(false).size(), 2u);
  for (const ComposedCase& c : Cases(false)) ExpectSynthesizerMatches(Strip(c, false));
}

TEST_P(Synthesizer, DenseGivesTheNumbersOfItsDefinition) {
  // relu(-7, 1) = (0, 1); rows (9, ln 2) and (9, 0); bias (0, ln 3): scores ln 2 and ln 3.
  RequestBuilder builder("synthesizer");
  builder.Floats("q", {1, 1, 1, 2}, {-7, 1})
      .Floats("synthetic_keys", {1, 3, 2}, {9, std::log(2.0f), 9, 0, 5, 5})
      .Floats("synthetic_bias", {1, 3}, {0, std::log(3.0f), 7})
      .Floats("v", {1, 1, 2, 1}, {10, 20})
      .Param("return_weights", true)
      .Param("return_lse", true);
  const Values values = RunByName(builder.request());
  ExpectAllNear(values.at("weights"), {0.4, 0.6}, 2e-7);
  ExpectAllNear(values.at("output"), {16}, 1e-5);
  ExpectAllNear(values.at("lse"), {std::log(5.0)}, 5e-7);
}

TEST_P(Synthesizer, RandomGivesTheNumbersOfItsDefinition) {
  const float ln2 = std::log(2.0f), ln3 = std::log(3.0f);
  RequestBuilder builder("synthesizer");
  builder.Floats("synthetic_scores", {1, 3, 3}, {ln2, ln3, 8, 0, 0, 8, 8, 8, 8})
      .Floats("v", {1, 1, 2, 1}, {10, 20});
  ExpectAllNear(RunByName(builder.request()).at("output"), {16, 15}, 1e-5);
}

TEST_P(Synthesizer, DenseReducesToScaledDotProductWithoutNegativeHiddenUnits) {
  ComposedCase c{.id = "synthesizer",
                 .inner = MakeCase({.q_len = 20, .kv_len = 90}),
                 .extras = {},
                 .params = {}};
  c.inner.q.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = std::abs(x); });
  c.inner.scalars.scale = 0.2;
  c.extras.push_back({"synthetic_keys", {2, 90, 64}, c.inner.k.Elements()});
  const std::vector<float> plain = RunAttention(c.inner).output.Elements();
  ExpectAllNear(RunByName(Strip(c, true)).at("output"), {plain.begin(), plain.end()}, 1e-5);
}

TEST_P(Synthesizer, RandomReducesToAverageWithEqualScores) {
  RequestBuilder builder("synthesizer");
  builder.Floats("synthetic_scores", {1, 3, 3}, std::vector<float>(9, 4.0f))
      .Floats("v", {1, 1, 3, 1}, {1, 2, 6})
      .Param("causal", true);
  ExpectAllNear(RunByName(builder.request()).at("output"), {1, 1.5, 3}, 1e-6);
}

TEST_P(Synthesizer, EmptyRowIsZeroAndWhatIsMaskedCannotMatter) {
  for (const bool dense : {true, false}) {
    ComposedCase c = Cases(dense)[dense ? 1 : 0];
    const int64_t len = c.inner.sizes.kv_len;
    c.inner.key_lengths.assign(2, static_cast<int32_t>(len));
    c.inner.key_lengths[0] = 0;
    c.inner.key_lengths[1] = static_cast<int32_t>(len / 2);
    const std::vector<double> clean = RunByName(Strip(c, dense)).at("output");
    for (size_t n = 0; n < clean.size() / 2; ++n) EXPECT_EQ(clean[n], 0.0);
    for (int64_t j = len / 2; j < len; ++j) c.inner.v(1, 0, j, 3) = kNan;
    for (int64_t d = 0; dense && d < c.inner.sizes.head_dim; ++d) {
      const int64_t row = len - 1;
      c.extra("synthetic_keys").values[static_cast<size_t>(row * c.inner.sizes.head_dim + d)] =
          kNan;
    }
    EXPECT_EQ(RunByName(Strip(c, dense)).at("output"), clean);
  }
}

TEST_P(Synthesizer, ThreadsChangeNoBit) {
  ExpectSameBitsForAnyThreads(Strip(Cases(true)[1], true));
  ExpectSameBitsForAnyThreads(Strip(Cases(false)[1], false));
}

TEST_P(Synthesizer, BadArgumentsAreRefused) {
  RequestBuilder both("synthesizer"), neither("synthesizer"), narrow("synthesizer"),
      scaled("synthesizer"), small("synthesizer");
  both.Floats("q", {1, 1, 1, 1}, {1})
      .Floats("synthetic_keys", {1, 1, 1}, {1})
      .Floats("synthetic_scores", {1, 1, 1}, {1})
      .Floats("v", {1, 1, 1, 1}, {1});
  ExpectBothRefuse(both.request(), ErrorCode::kOption, "synthetic_scores");
  neither.Floats("v", {1, 1, 1, 1}, {1});
  ExpectBothRefuse(neither.request(), ErrorCode::kOption, "synthetic_scores");
  narrow.Floats("q", {1, 1, 1, 2}, {1, 1})
      .Floats("synthetic_keys", {1, 1, 1}, {1})
      .Floats("v", {1, 1, 1, 1}, {1});
  ExpectBothRefuse(narrow.request(), ErrorCode::kShape, "synthetic_keys");
  scaled.Floats("synthetic_scores", {1, 1, 1}, {1}).Floats("v", {1, 1, 1, 1}, {1});
  scaled.Param("scale", 2.0);
  ExpectBothRefuse(scaled.request(), ErrorCode::kUnsupported, "scale");
  small.Floats("synthetic_scores", {1, 1, 1}, {1}).Floats("v", {1, 1, 2, 1}, {1, 1});
  ExpectBothRefuse(small.request(), ErrorCode::kShape, "synthetic_scores");
}

}  // namespace
}  // namespace heed::testing
