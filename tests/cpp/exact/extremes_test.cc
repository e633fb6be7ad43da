// Logits far outside the comfortable range, and denormal numbers.
#include <cfloat>
#include <cmath>

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

// Exact logits leave no excuse: the plain bound, without the allowance for large logits.
void ExpectPlainAccuracy(const AttentionCase& c) {
  const Values expected = RunOracle(c);
  const Results r = RunAttention(c, {.lse = true, .weights = true});
  const std::vector<double>& output = expected.at("output");
  ExpectWithin(r.output.Elements(), output,
               std::vector<double>(output.size(), 4 * kAttentionMaxError), "output");
  const std::vector<double>& weights = expected.at("weights");
  ExpectWithin(r.weights.Elements(), weights,
               std::vector<double>(weights.size(), kAttentionMaxError), "weights");
  std::vector<double> lse_bounds;
  for (const double lse : expected.at("lse")) {
    lse_bounds.push_back(kAttentionMaxError + FLT_EPSILON * std::abs(lse));
  }
  ExpectWithin(r.lse.Elements(), expected.at("lse"), lse_bounds, "lse");
}

TEST_P(AttentionExtremes, LogitsOfTenThousandAreExact) {
  std::vector<float> logits;
  for (int j = 0; j < 150; ++j) logits.push_back(static_cast<float>(j % 2 ? 1e4 - j : -1e4 + j));
  ExpectPlainAccuracy(Logits(logits));
}

TEST_P(AttentionExtremes, AllVeryNegativeLogitsKeepTheirSoftmax) {
  std::vector<float> logits;
  for (int j = 0; j < 150; ++j) logits.push_back(-245000.0f - static_cast<float>(j) * 0.5f);
  ExpectPlainAccuracy(Logits(logits));
  for (float& logit : logits) logit = -1e30f;
  ExpectPlainAccuracy(Logits(logits));
}

TEST_P(AttentionExtremes, LogitsOfTheLargestFloatsPickTheLargest) {
  for (const float huge : {1e30f, FLT_MAX}) {
    std::vector<float> logits(150, -huge);
    logits[137] = huge;
    const AttentionCase c = Logits(logits);
    ExpectPlainAccuracy(c);
    EXPECT_EQ(RunAttention(c).output(0, 0, 2, 3), c.v(0, 0, 137, 3));
  }
}

TEST_P(AttentionExtremes, RisingLogitsRescaleEveryTile) {
  std::vector<float> logits;
  for (int j = 0; j < 700; ++j) logits.push_back(static_cast<float>(j));
  ExpectPlainAccuracy(Logits(logits));
  for (int j = 0; j < 700; ++j) logits[static_cast<size_t>(j)] = static_cast<float>(j) / 64;
  ExpectPlainAccuracy(Logits(logits));
}

TEST_P(AttentionExtremes, FallingLogitsUnderflowQuietly) {
  std::vector<float> logits;
  for (int j = 0; j < 700; ++j) logits.push_back(-static_cast<float>(j) / 4);
  ExpectPlainAccuracy(Logits(logits));
}

TEST_P(AttentionExtremes, NonzeroFirstTileMayBeWhollyHidden) {
  AttentionCase c = Logits(std::vector<float>(300, -1e30f));
  c.keep = Buffer<uint8_t>({1, 1, 3, 300}, Layout::kDense, 1);
  for (int64_t j = 0; j < 200; ++j) c.keep(0, 0, 1, j) = 0;
  ExpectPlainAccuracy(c);
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
