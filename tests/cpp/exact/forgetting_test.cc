// Forgetting attention: gates between key and query, long sums, cuts, and its limits.
#include <cmath>
#include <limits>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/registry.h"
#include "request_builder.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr float kInf = std::numeric_limits<float>::infinity();

class Forgetting : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Forgetting);

// Gates of about -size each.
AttentionCase Small(double size, int64_t q_len = 33, int64_t kv_len = 390) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = q_len,
                              .kv_len = kv_len,
                              .head_dim = 16,
                              .head_dim_v = 9});
  Random random(1);
  c.AddTensor("log_gates", {2, 4, kv_len}, random, size);
  c.tensors["log_gates"].buffer.ForEach(
      [](int64_t, int64_t, int64_t, int64_t, float& x) { x = -std::abs(x); });
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::End();
  return c;
}

TEST_P(Forgetting, MatchesReference) {
  for (const double size : {0.0, 1e-3, 0.1, 5.0}) {
    ExpectMatchesReference(Small(size));
    AttentionCase c = Small(size);
    c.key_lengths = {390, 77};
    c.scalars.query_offset = QueryOffset::At(100);
    ExpectMatchesReference(c);
  }
}

TEST_P(Forgetting, GivesHandComputedNumbers) {
  // Gates 1/2: each step back halves the weight. Three equal keys: 1/7, 2/7, 4/7.
  RequestBuilder builder("forgetting");
  const float half = std::log(0.5f);
  builder.Floats("q", {1, 1, 3, 1}, {0, 0, 0})
      .Floats("k", {1, 1, 3, 1}, {1, 2, 3})
      .Floats("v", {1, 1, 3, 1}, {1, 2, 3})
      .Floats("log_gates", {1, 1, 3}, {half, half, half})
      .Param("return_weights", true);
  const std::vector<double> expected = {1, 0, 0, 1 / 3.0, 2 / 3.0, 0, 1 / 7.0, 2 / 7.0, 4 / 7.0};
  EXPECT_THAT(RunByName(builder.request()).at("weights"), Pointwise(DoubleNear(1e-7), expected));
}

// What a library fills in for -inf hides what came before, and spoils no later sum.
TEST_P(Forgetting, GatesFarBelowZeroAreClosed) {
  for (const float gate : {-kInf, -std::numeric_limits<float>::max(), -1e20f, -1e9f, -1.1e5f}) {
    AttentionCase c = Small(0.3, 20, 60);
    c.tensors["log_gates"].buffer.ForEach(
        [&](int64_t, int64_t, int64_t h, int64_t j, float& x) { x = j == 17 * h ? gate : x; });
    ExpectMatchesReference(c);
    const Results r = RunAttention(c, {.weights = true});
    EXPECT_EQ(r.weights(1, 2, 19, 33), 0.0f) << gate;
    EXPECT_GT(r.weights(1, 2, 19, 34), 0.0f) << gate;
  }
}

TEST_P(Forgetting, KeepsItsPrecisionWhereSumsAreLarge) {
  // 20000 gates of -5: the running sum is -1e5, whose neighbours in float32 are 0.008 apart.
  AttentionCase c = Small(0, 4, 20000);
  c.tensors["log_gates"].buffer.ForEach(
      [](int64_t, int64_t, int64_t, int64_t j, float& x) { x = -5.0f - 1e-3f * (j % 7); });
  c.scalars.scale = 0.0;
  const Results r = RunAttention(c, {.scores = ScoreStage::kBiased});
  double sum = 0;
  for (int64_t back = 0; back < 6; ++back) {
    const int64_t j = 19999 - back;
    EXPECT_NEAR(r.scores(1, 2, 3, j), sum, 4e-6) << back;
    sum += c.tensors["log_gates"].buffer(0, 1, 2, j);
  }
}

TEST_P(Forgetting, ReducesToCausalAttentionWithoutForgetting) {
  AttentionCase c = Small(0);
  const std::vector<float> forgetting = RunAttention(c).output.Elements();
  c.tensors.clear();
  const std::vector<float> causal = RunAttention(c).output.Elements();
  for (size_t n = 0; n < causal.size(); ++n) EXPECT_NEAR(forgetting[n], causal[n], 2e-6);
}

TEST_P(Forgetting, AGateOfZeroHidesWhatCameBefore) {
  AttentionCase c = Small(0.1);
  for (const int64_t j : {0, 100, 256, 370}) c.tensors["log_gates"].buffer(0, 1, 2, j) = -kInf;
  ExpectMatchesReference(c);
  const Results r = RunAttention(c, {.weights = true});
  EXPECT_EQ(r.weights(1, 2, 20, 369), 0.0f);  // query 20 stands at 377
  EXPECT_GT(r.weights(1, 2, 20, 370), 0.0f);
}

TEST_P(Forgetting, ANanSpoilsOnlyRowsThatLookAcrossIt) {
  AttentionCase c = Small(0.1);
  c.tensors["log_gates"].buffer(0, 1, 2, 370) = std::nanf("");
  ExpectMatchesReference(c);
  c.scalars.window = Window{2, 0};
  ExpectMatchesReference(c);
}

TEST_P(Forgetting, GatesBeyondTheLengthAreNeverRead) {
  AttentionCase c = Small(0.1);
  c.key_lengths = {100, 389};
  c.scalars.query_offset = QueryOffset::At(90);
  const Results clean = RunAttention(c);
  c.tensors["log_gates"].buffer(0, 0, 1, 100) = std::nanf("");
  c.tensors["log_gates"].buffer(0, 0, 1, 200) = 7.0f;
  EXPECT_EQ(Bits(clean.output), Bits(RunAttention(c).output));
}

TEST(ForgettingErrors, NameTheArgument) {
  const auto refused = [](const AttentionCase& c, ErrorCode code, const std::string& name) {
    try {
      RunAttention(c);
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
  };
  AttentionCase c = Small(0.1);
  c.scalars.causal = false;
  refused(c, ErrorCode::kOption, "log_gates");
  c = Small(0.1);
  c.tensors["log_gates"].buffer(0, 1, 1, 3) = 0.5f;
  refused(c, ErrorCode::kRange, "log_gates");
  c = Small(0.1);
  Random random(1);
  c.AddTensor("log_gates", {2, 4, 389}, random);
  refused(c, ErrorCode::kShape, "log_gates");
}

}  // namespace
}  // namespace heed::testing
