// Cosine attention: its numbers, its temperature and its limits.
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
using ::testing::HasSubstr;
using ::testing::Pointwise;

class Cosine : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Cosine);

AttentionCase Small() {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = 33,
                              .kv_len = 300,
                              .head_dim = 24,
                              .head_dim_v = 9});
  c.scalars.score = Score::kCosine;
  return c;
}

void SetTemperature(AttentionCase& c, const std::vector<float>& values) {
  NamedBuffer& named = c.tensors["temperature"];
  named.rank = 1;
  const int64_t count = static_cast<int64_t>(values.size());
  named.buffer = Buffer<float>({1, 1, 1, count}, Layout::kDense, 0.0f);
  for (int64_t h = 0; h < count; ++h) named.buffer(0, 0, 0, h) = values[static_cast<size_t>(h)];
}

TEST_P(Cosine, MatchesReference) {
  AttentionCase c = Small();
  ExpectMatchesReference(c);
  c.scalars.scale = 10.0;
  ExpectMatchesReference(c);
}

TEST_P(Cosine, TemperatureIsOneValueOrOnePerHead) {
  AttentionCase c = Small();
  SetTemperature(c, {0.1f});
  ExpectMatchesReference(c);
  SetTemperature(c, {0.05f, 0.5f, 1.0f, 7.0f});
  ExpectMatchesReference(c);
}

TEST_P(Cosine, TemperaturesBelowTheMinimumAreRaisedToIt) {
  AttentionCase c = Small();
  SetTemperature(c, {0.001f, 0.5f, 0.009f, 7.0f});
  c.scalars.min_temperature = 0.01;
  ExpectMatchesReference(c);
  const Results clamped = RunAttention(c);
  SetTemperature(c, {0.01f, 0.5f, 0.01f, 7.0f});
  c.scalars.min_temperature = std::nullopt;
  EXPECT_EQ(Bits(clamped.output), Bits(RunAttention(c).output));
}

TEST_P(Cosine, GivesTheNumbersOfAllenNlp) {
  // allenai/allennlp, cosine_matrix_attention_test.py, two decimals.
  RequestBuilder builder("cosine");
  builder.Floats("q", {2, 1, 2, 3}, {0, 0, 0, 4, 5, 6, -7, -8, -9, 10, 11, 12})
      .Floats("k", {2, 1, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
      .Floats("v", {2, 1, 2, 3}, std::vector<float>(12, 1.0f))
      .Param("return_scores", "raw");
  EXPECT_THAT(RunByName(builder.request()).at("scores"),
              Pointwise(DoubleNear(0.01), std::vector<double>{0, 0, 0.97, 1, -1, -0.99, 0.99, 1}));
}

TEST_P(Cosine, ReducesToScaledDotProductForUnitVectors) {
  AttentionCase c = Small();
  for (Buffer<float>* buffer : {&c.q, &c.k}) {
    buffer->ForEach(
        [](int64_t, int64_t, int64_t i, int64_t d, float& x) { x = d == i % 24 ? 1.0f : 0.0f; });
  }
  c.scalars.scale = 3.0;
  const Results cosine = RunAttention(c);
  c.scalars.score = Score::kDot;
  EXPECT_EQ(Bits(cosine.output), Bits(RunAttention(c).output));
}

TEST_P(Cosine, LengthsDoNotMatter) {
  AttentionCase c = Small();
  const Results unit = RunAttention(c, {.scores = ScoreStage::kRaw});
  c.q.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x *= 0x1p+100f; });
  c.k.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x *= 0x1p-120f; });
  const std::vector<float> scaled = RunAttention(c, {.scores = ScoreStage::kRaw}).scores.Elements();
  const std::vector<float> expected = unit.scores.Elements();
  for (size_t n = 0; n < expected.size(); ++n) EXPECT_NEAR(scaled[n], expected[n], 1e-6);
}

TEST_P(Cosine, ZeroVectorsAreSimilarToNothing) {
  AttentionCase c = Small();
  for (int64_t d = 0; d < 24; ++d) c.q(0, 1, 3, d) = c.k(1, 0, 7, d) = 0.0f;
  const Results r = RunAttention(c, {.scores = ScoreStage::kRaw});
  for (int64_t j = 0; j < 300; ++j) EXPECT_EQ(r.scores(0, 1, 3, j), 0.0f);
  for (int64_t i = 0; i < 33; ++i) EXPECT_EQ(r.scores(1, 1, i, 7), 0.0f);
}

TEST_P(Cosine, EmptyRowIsZeroAndMinusInf) {
  AttentionCase c = Small();
  c.key_lengths = {0, 300};
  const Results r = RunAttention(c);
  EXPECT_EQ(r.output(0, 1, 5, 2), 0.0f);
  EXPECT_EQ(r.lse(0, 1, 5, 0), -std::numeric_limits<float>::infinity());
}

TEST_P(Cosine, NonFiniteNumbersReachOnlyTheirRows) {
  AttentionCase c = Small();
  c.key_lengths = {100, 299};
  const Results clean = RunAttention(c);
  for (int64_t d = 0; d < 24; ++d) c.k(0, 1, 100, d) = std::nanf("");
  EXPECT_EQ(Bits(clean.output), Bits(RunAttention(c).output));
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    c.q(1, 2, 4, 5) = bad;
    ExpectMatchesReference(c);
  }
}

TEST(CosineErrors, NameTheArgument) {
  const auto refused = [](AttentionCase c, ErrorCode code, const std::string& name) {
    try {
      RunAttention(c);
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
  };
  AttentionCase c = Small();
  SetTemperature(c, {1, 1});
  refused(c, ErrorCode::kShape, "temperature");
  SetTemperature(c, {0});
  refused(c, ErrorCode::kRange, "temperature");
  SetTemperature(c, {std::nanf("")});
  refused(c, ErrorCode::kRange, "temperature");
  SetTemperature(c, {1});
  c.scalars.min_temperature = -1;
  refused(c, ErrorCode::kRange, "min_temperature");
  c.scalars.min_temperature = std::nullopt;
  c.scalars.score = Score::kDot;
  refused(c, ErrorCode::kOption, "temperature");
  c = Small();
  c.scalars.normalize = Normalize::kKernelSum;
  refused(c, ErrorCode::kUnsupported, "kernel");
}

}  // namespace
}  // namespace heed::testing
