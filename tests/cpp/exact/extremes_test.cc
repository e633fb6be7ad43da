// Logits far outside the comfortable range, and denormal numbers.
#include <vector>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class AttentionExtremes : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AttentionExtremes);

// head_dim 1, q = 1, scale = 1: the logits are the keys themselves, without rounding.
AttentionCase Logits(const std::vector<float>& logits) {
  AttentionCase c = MakeCase({.num_heads = 1,
                              .num_kv_heads = 1,
                              .q_len = 3,
                              .kv_len = static_cast<int64_t>(logits.size()),
                              .head_dim = 1,
                              .head_dim_v = 5});
  c.scalars.scale = 1.0;
  c.q.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = 1; });
  c.k.ForEach(
      [&](int64_t, int64_t, int64_t j, int64_t, float& x) { x = logits[static_cast<size_t>(j)]; });
  return c;
}

TEST_P(AttentionExtremes, LogitsOfTenThousandMatchReference) {
  std::vector<float> logits;
  for (int j = 0; j < 150; ++j) logits.push_back(static_cast<float>(j % 2 ? 1e4 - j : -1e4 + j));
  ExpectMatchesReference(Logits(logits));
}

TEST_P(AttentionExtremes, AllVeryNegativeLogitsKeepTheirSoftmax) {
  std::vector<float> logits;
  for (int j = 0; j < 150; ++j) logits.push_back(-245000.0f - static_cast<float>(j) * 0.5f);
  ExpectMatchesReference(Logits(logits));
}

TEST_P(AttentionExtremes, NoFiniteLogitMeansHidden) {
  for (const float low : {-1e30f, -2e38f}) {
    const Results r = RunAttention(Logits(std::vector<float>(150, low)), {.weights = true});
    for (const float weight : r.weights.Elements()) EXPECT_NEAR(weight, 1 / 150.0, 1e-8);
    EXPECT_NEAR(r.lse(0, 0, 1, 0) / low, 1.0, 1e-6);
  }
}

TEST_P(AttentionExtremes, LogitsOfTheLargestFloatsPickTheLargest) {
  for (const float huge : {1e30f, 2e38f}) {
    std::vector<float> logits(150, -huge);
    logits[137] = huge;
    const AttentionCase c = Logits(logits);
    ExpectMatchesReference(c);
    EXPECT_EQ(RunAttention(c).output(0, 0, 2, 3), c.v(0, 0, 137, 3));
  }
}

TEST_P(AttentionExtremes, RisingLogitsRescaleEveryTile) {
  std::vector<float> logits;
  for (int j = 0; j < 700; ++j) logits.push_back(static_cast<float>(j));
  ExpectMatchesReference(Logits(logits));
  for (int j = 0; j < 700; ++j) logits[static_cast<size_t>(j)] = static_cast<float>(j) / 64;
  ExpectMatchesReference(Logits(logits));
}

TEST_P(AttentionExtremes, FallingLogitsUnderflowQuietly) {
  std::vector<float> logits;
  for (int j = 0; j < 700; ++j) logits.push_back(-static_cast<float>(j) / 4);
  ExpectMatchesReference(Logits(logits));
}

TEST_P(AttentionExtremes, FirstTilesMayBeWhollyHidden) {
  AttentionCase c = Logits(std::vector<float>(300, -1e30f));
  c.keep = Buffer<uint8_t>({1, 1, 3, 300}, Layout::kDense, 1);
  for (int64_t j = 0; j < 200; ++j) c.keep(0, 0, 1, j) = 0;
  const Results r = RunAttention(c, {.weights = true});
  for (int64_t j = 0; j < 300; ++j) {
    EXPECT_NEAR(r.weights(0, 0, 1, j), j < 200 ? 0.0 : 1 / 100.0, 1e-8);
    EXPECT_NEAR(r.weights(0, 0, 2, j), 1 / 300.0, 1e-8);
  }
}

TEST_P(AttentionExtremes, DenormalInputsMatchReference) {
  AttentionCase c = MakeCase({.q_len = 9, .kv_len = 70, .head_dim = 16, .head_dim_v = 16});
  for (Buffer<float>* buffer : {&c.q, &c.v}) {
    buffer->ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x *= 1e-40f; });
  }
  ExpectMatchesReference(c);
}

TEST_P(AttentionExtremes, LargeLogitsStayWithinTheirBound) {
  AttentionCase c = MakeCase({.q_len = 33, .kv_len = 150, .head_dim = 64});
  c.scalars.scale = 4.0;
  ExpectMatchesReference(c);
}

}  // namespace
}  // namespace heed::testing
