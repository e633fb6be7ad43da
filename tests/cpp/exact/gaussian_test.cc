// Gaussian attention: the softmax of minus half the squared distance.
#include <cmath>
#include <limits>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "request_builder.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

class Gaussian : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Gaussian);

AttentionCase Small(int64_t q_len = 33, int64_t kv_len = 300) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = q_len,
                              .kv_len = kv_len,
                              .head_dim = 3,
                              .head_dim_v = 9});
  c.scalars.score = Score::kSquaredDistance;
  return c;
}

TEST_P(Gaussian, MatchesReferenceForEveryWidth) {
  AttentionCase c = Small();
  ExpectMatchesReference(c);
  for (const float width : {0.3f, 1.7f, 40.0f}) {
    c.width = {width};
    ExpectMatchesReference(c);
  }
  c.width = {0.5f, 2.0f, 7.0f};
  ExpectMatchesReference(c);
}

TEST_P(Gaussian, GivesHandComputedWeightsOnALine) {
  // u = 0.5, 0.25, 1.5 at width 2.
  RequestBuilder builder("gaussian");
  builder.Floats("q", {1, 1, 1, 1}, {0})
      .Floats("k", {1, 1, 3, 1}, {-1, 0.5, 3})
      .Floats("v", {1, 1, 3, 1}, {1, 0, 0})
      .Param("width", 2.0)
      .Param("return_weights", true)
      .Param("return_lse", true);
  const Values values = RunByName(builder.request());
  const double a = std::exp(-0.125), b = std::exp(-0.03125), c = std::exp(-1.125);
  EXPECT_THAT(values.at("weights"),
              Pointwise(DoubleNear(1e-7),
                        std::vector<double>{a / (a + b + c), b / (a + b + c), c / (a + b + c)}));
  EXPECT_NEAR(values.at("output")[0], a / (a + b + c), 1e-7);
  EXPECT_NEAR(values.at("lse")[0], std::log(a + b + c), 1e-6);
}

TEST_P(Gaussian, ReducesToKernelRegressionWithoutOptions) {
  AttentionCase c = Small();
  c.width = {1.5f};
  const Results softmax = RunAttention(c);
  c.scalars.normalize = Normalize::kKernelSum;
  EXPECT_EQ(Bits(softmax.output), Bits(RunAttention(c).output));
}

TEST_P(Gaussian, ReducesToScaledDotProductWhenKeysHaveTheSameLength) {
  // -|q - k|^2 / 2 = q.k - |q|^2 / 2 - |k|^2 / 2, and the last two are the same for all keys.
  AttentionCase c = Small(20, 70);
  c.k.ForEach([&](int64_t b, int64_t h, int64_t j, int64_t d, float& x) {
    x = d == 0   ? std::cos(static_cast<float>(j + b))
        : d == 1 ? std::sin(static_cast<float>(j + b))
                 : 0.1f * static_cast<float>(h);
  });
  const std::vector<float> gaussian = RunAttention(c).output.Elements();
  c.scalars.score = Score::kDot;
  c.scalars.scale = 1.0;
  const std::vector<float> dot = RunAttention(c).output.Elements();
  for (size_t n = 0; n < dot.size(); ++n) EXPECT_NEAR(gaussian[n], dot[n], 1e-5);
}

TEST_P(Gaussian, TellsNearKeysApartFarFromTheOrigin) {
  // |q|^2 + |k|^2 - 2 q.k would lose these distances: the squares are 1e8, a step of float32 is 8.
  RequestBuilder builder("gaussian");
  builder.Floats("q", {1, 1, 1, 1}, {10000})
      .Floats("k", {1, 1, 2, 1}, {10000, 10001})
      .Floats("v", {1, 1, 2, 1}, {1, 0});
  EXPECT_NEAR(RunByName(builder.request()).at("output")[0], 1 / (1 + std::exp(-0.5)), 1e-6);
}

TEST_P(Gaussian, EmptyRowIsZeroAndMinusInf) {
  AttentionCase c = Small();
  c.key_lengths = {0, 300};
  const Results r = RunAttention(c);
  EXPECT_EQ(r.output(0, 1, 5, 2), 0.0f);
  EXPECT_EQ(r.lse(0, 1, 5, 0), -std::numeric_limits<float>::infinity());
}

TEST_P(Gaussian, MaskedNanDoesNotMatter) {
  AttentionCase c = Small();
  c.key_lengths = {100, 299};
  const Results clean = RunAttention(c);
  for (int64_t d = 0; d < 3; ++d) c.k(0, 1, 100, d) = c.v(0, 1, 100, d) = std::nanf("");
  EXPECT_EQ(Bits(clean.output), Bits(RunAttention(c).output));
}

}  // namespace
}  // namespace heed::testing
