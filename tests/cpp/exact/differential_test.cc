// Differential attention: against the oracle, its limits, and numbers from its definition.
#include <cmath>
#include <limits>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/compose.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Differential : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Differential);

// A scale, so that the bounds of plain attention with the whole head_dim hold for its halves.
ComposedCase MakeDifferential(AttentionCase inner) {
  ComposedCase c{.id = "differential", .inner = std::move(inner), .extras = {}, .params = {}};
  c.inner.scalars.scale = 0.2;
  c.AddNormal("lambda", {c.inner.sizes.num_heads});
  return c;
}

double MaxLambda(ComposedCase& c) {
  double max = 0;
  for (const float x : c.extra("lambda").values) max = std::max(max, std::abs(double{x}));
  return max;
}

TEST_P(Differential, MatchesReferenceWithoutTheNorm) {
  for (const AttentionCase& inner : PassThroughCases()) {
    ComposedCase c = MakeDifferential(inner);
    c.params.push_back({"sub_norm", std::string("none")});
    const double factor = 1.5 * (1 + MaxLambda(c));
    ExpectComposedMatches(c, factor, factor);
  }
}

TEST_P(Differential, MatchesReferenceWithTheNorm) {
  for (const AttentionCase& inner : PassThroughCases()) {
    ComposedCase c = MakeDifferential(inner);
    c.AddNormal("norm_weight", {17}, 7);
    c.params.push_back({"lambda_init", 0.3});
    c.params.push_back({"epsilon", 1e-3});
    // The norm divides by at least sqrt(epsilon); x / rms changes by (1 + |x| / rms) / rms.
    const double steepest = (1 + std::sqrt(17.0)) / std::sqrt(1e-3) * 4;  // |norm_weight| < 4
    ExpectComposedMatches(c, steepest * (1 + MaxLambda(c)), 1.5 * (1 + MaxLambda(c)));
  }
}

TEST_P(Differential, DefaultsMatchReference) {
  ComposedCase c{.id = "differential",
                 .inner = MakeCase({.num_heads = 2, .q_len = 5, .kv_len = 40, .head_dim = 32}),
                 .extras = {},
                 .params = {}};
  const std::vector<double> expected = RunOracle(c.request()).at("output");
  ExpectAllNear(RunByName(c.request()).at("output"), expected, 2e-5);
  // lambda absent is lambda_init, whose default is 0.8; one value serves every head.
  c.extras.push_back({"lambda", {1}, {0.8f}});
  ExpectAllNear(RunByName(c.request()).at("output"), expected, 2e-5);
}

TEST_P(Differential, OtherScoresAndUserFunctionsPassThrough) {
  ComposedCase c{.id = "differential",
                 .inner = MakeCase({.num_heads = 2, .q_len = 5, .kv_len = 40, .head_dim = 32}),
                 .extras = {},
                 .params = {}};
  c.params = {{"sub_norm", std::string("none")},
              {"score", std::string("cosine")},
              {"temperature", std::vector<double>{0.1, 0.7}}};
  const std::vector<double> cosine = RunByName(c.request()).at("output");
  ExpectAllNear(cosine, RunOracle(c.request()).at("output"), 5e-5);
  c.params[2].value = std::vector<double>{0.1, 0.1};
  EXPECT_NE(RunByName(c.request()).at("output"), cosine);
  c.params = {{"keep_mod", std::string("kvIndex <= qIndex + 7")}};
  ExpectAllNear(RunByName(c.request()).at("output"), RunOracle(c.request()).at("output"), 5e-5);
}

TEST_P(Differential, GivesTheNumbersOfItsDefinition) {
  // q1 = q2 = (1), k1 = (ln 2, 0): map 2/3, 1/3. k2 = (0, ln 3): map 1/4, 3/4. lambda 1/2:
  // 2/3 - 1/8 = 13/24, 1/3 - 3/8 = -1/24. v = 24 and 0, then 0 and 24: output 13, -1.
  RequestBuilder builder("differential");
  builder.Floats("q", {1, 1, 1, 2}, {1, 1})
      .Floats("k", {1, 1, 2, 2}, {std::log(2.0f), 0, 0, std::log(3.0f)})
      .Floats("v", {1, 1, 2, 2}, {24, 0, 0, 24})
      .Floats("lambda", {1}, {0.5f})
      .Param("return_weights", true);
  RequestBuilder plain = builder;
  plain.Param("sub_norm", "none");
  const Values values = RunByName(plain.request());
  ExpectAllNear(values.at("weights"), {13 / 24.0, -1 / 24.0}, 2e-7);
  ExpectAllNear(values.at("output"), {13, -1}, 1e-5);
  // Root mean square of (13, -1): sqrt(85); times 1 - 0.8.
  const double rms = std::sqrt(85.0);
  ExpectAllNear(RunByName(builder.request()).at("output"), {0.2 * 13 / rms, -0.2 / rms}, 1e-6);
}

TEST_P(Differential, LambdaInitIsThatOfThePaper) {
  // Section 2.1: 0.8 - 0.6 exp(-0.3 (l - 1)): 0.2 in the first layer, towards 0.8.
  EXPECT_NEAR(DifferentialLambdaInit(1), 0.2, 1e-15);
  EXPECT_NEAR(DifferentialLambdaInit(2), 0.35550906759, 1e-11);
  EXPECT_NEAR(DifferentialLambdaInit(100), 0.8, 1e-12);
  EXPECT_THROW(DifferentialLambdaInit(0), Error);
  const std::vector<float> zeros(4), ones(4, 1.0f);
  EXPECT_FLOAT_EQ(DifferentialLambda(zeros, ones, zeros, ones, 0.3), 0.3f);
  EXPECT_FLOAT_EQ(DifferentialLambda(ones, ones, zeros, ones, 0.0),
                  static_cast<float>(std::exp(4) - 1));
  EXPECT_THROW(DifferentialLambda(zeros, ones, std::vector<float>(3), ones, 0.3), Error);
}

TEST_P(Differential, ReducesToScaledDotProductWithoutTheSecondMap) {
  AttentionCase both = MakeCase({.q_len = 9, .kv_len = 150, .head_dim = 32});
  AttentionCase first = MakeCase({.q_len = 9, .kv_len = 150, .head_dim = 16});
  first.q.ForEach(
      [&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) { x = both.q(b, h, i, d); });
  first.k.ForEach(
      [&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) { x = both.k(b, h, i, d); });
  first.v = both.v;
  DifferentialOptions options;
  const float none = 0;
  options.lambda = {&none, 1};
  options.sub_norm = SubNorm::kNone;
  Buffer<float> output({1, 2, 9, 64}, Layout::kPadded, kNan);
  DifferentialAttention(both.q.view(), both.k.view(), both.v.view(), options,
                        {.output = output.view()});
  EXPECT_TRUE(output.GapsAreUntouched());
  EXPECT_EQ(Bits(output), Bits(RunAttention(first).output));
}

TEST_P(Differential, EqualMapsCancel) {
  ComposedCase c = MakeDifferential(MakeCase({.q_len = 9, .kv_len = 150, .head_dim = 32}));
  for (Buffer<float>* buffer : {&c.inner.q, &c.inner.k}) {
    buffer->ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
      x = (*buffer)(b, h, i, d % 16);
    });
  }
  c.extra("lambda").values = {1, 1};
  const std::vector<double> output = RunByName(c.request()).at("output");
  for (const double x : output) EXPECT_EQ(x, 0.0);
}

TEST_P(Differential, EmptyRowIsZeroAndWhatIsMaskedCannotMatter) {
  ComposedCase c = MakeDifferential(
      MakeCase({.batch = 2, .q_len = 9, .kv_len = 150, .head_dim = 32, .head_dim_v = 8}));
  c.inner.key_lengths = {0, 100};
  const Values clean = RunByName(c.request());
  for (size_t n = 0; n < 2 * 9 * 8; ++n) EXPECT_EQ(clean.at("output")[n], 0.0);
  for (int64_t j = 100; j < 150; ++j) {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t d = 0; d < 32; ++d) c.inner.k(1, h, j, d) = kNan;
      c.inner.v(1, h, j, j % 8) = kNan;
    }
  }
  EXPECT_EQ(RunByName(c.request()), clean);
}

TEST_P(Differential, VisibleNanReachesItsRowsOnly) {
  ComposedCase c = MakeDifferential(MakeCase({.q_len = 30, .kv_len = 30, .head_dim = 32}));
  c.inner.scalars.causal = true;
  c.inner.k(0, 1, 20, 31) = kNan;  // in the second map
  const std::vector<double> output = RunByName(c.request()).at("output");
  for (size_t n = 0; n < output.size(); ++n) {
    EXPECT_EQ(std::isnan(output[n]), n / 64 >= 50) << n;  // head 1, queries from 20 on
  }
}

TEST_P(Differential, ThreadsChangeNoBit) {
  ComposedCase c = MakeDifferential(PassThroughCases()[1]);
  c.params.push_back({"return_weights", true});
  ExpectSameBitsForAnyThreads(c.request());
}

TEST_P(Differential, BadArgumentsAreRefused) {
  const ComposedCase good =
      MakeDifferential(MakeCase({.q_len = 3, .kv_len = 3, .head_dim = 4, .head_dim_v = 4}));
  const auto refuse = [&](const auto& spoil, ErrorCode code, const std::string& name) {
    ComposedCase c = good;
    spoil(c);
    ExpectBothRefuse(c.request(), code, name);
  };
  const auto param = [](const char* name, ParamValue value) {
    return [=](ComposedCase& c) { c.params.push_back({name, value}); };
  };
  refuse(param("lambda_init", 1.5), ErrorCode::kRange, "lambda_init");
  refuse(param("epsilon", 0.0), ErrorCode::kRange, "epsilon");
  refuse(param("sub_norm", std::string("layer")), ErrorCode::kOption, "sub_norm");
  refuse(param("return_lse", true), ErrorCode::kOption, "return_lse");
  refuse([](ComposedCase& c) { c.extra("lambda").values[1] = kNan; }, ErrorCode::kRange, "lambda");
  refuse([](ComposedCase& c) { c.AddNormal("norm_weight", {3}); }, ErrorCode::kShape,
         "norm_weight");
  ComposedCase odd =
      MakeDifferential(MakeCase({.q_len = 3, .kv_len = 3, .head_dim = 5, .head_dim_v = 4}));
  ExpectBothRefuse(odd.request(), ErrorCode::kShape, "head_dim");
}

}  // namespace
}  // namespace heed::testing
