// Disentangled attention: both terms, both kinds of rows, and the scale that counts the terms.
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

class Disentangled : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Disentangled);

AttentionCase Small(RelativeRows kind, int64_t rows, int64_t num_kv_heads = 4, int64_t q_len = 33,
                    int64_t kv_len = 390) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = num_kv_heads,
                              .q_len = q_len,
                              .kv_len = kv_len,
                              .head_dim = 16,
                              .head_dim_v = 9});
  Random random(1);
  c.AddTensor("relative_keys", {4, rows, 16}, random);
  c.AddTensor("relative_queries", {4, rows, 16}, random);
  c.scalars.relative_rows = kind;
  c.scalars.query_offset = QueryOffset::End();
  return c;
}

TEST_P(Disentangled, MatchesReferenceForSpans) {
  for (const int64_t rows : {2, 16, 100, 1000}) {
    ExpectMatchesReference(Small(RelativeRows::kSpan, rows));
    ExpectMatchesReference(Small(RelativeRows::kSpan, rows, 2));
    ExpectMatchesReference(Small(RelativeRows::kSpan, rows, 1, 7, 300));
  }
}

TEST_P(Disentangled, MatchesReferenceForLogarithmicBuckets) {
  for (const int64_t max_distance : {64, 300, 1000}) {
    AttentionCase c = Small(RelativeRows::kLogSpan, 64);
    c.scalars.relative_max_distance = max_distance;
    ExpectMatchesReference(c);
    c.scalars.causal = true;
    ExpectMatchesReference(c);
  }
}

TEST_P(Disentangled, EachTermMayBeLeftOut) {
  for (const char* name : {"relative_keys", "relative_queries"}) {
    AttentionCase c = Small(RelativeRows::kSpan, 32);
    c.tensors.erase(name);
    ExpectMatchesReference(c);
  }
}

// Scores of 9 queries and 9 keys, all ones, with a table whose row r holds r: the row of each pair.
std::vector<double> Rows(const std::string& kind, int64_t rows, double max_distance,
                         const char* table) {
  std::vector<float> numbers(static_cast<size_t>(rows));
  for (size_t r = 0; r < numbers.size(); ++r) numbers[r] = static_cast<float>(r);
  RequestBuilder builder("disentangled");
  builder.Floats("q", {1, 1, 9, 1}, std::vector<float>(9, 1))
      .Floats("k", {1, 1, 9, 1}, std::vector<float>(9, 1))
      .Floats("v", {1, 1, 9, 1}, std::vector<float>(9, 1))
      .Floats(table, {rows, 1}, numbers)
      .Param("relative_rows", kind)
      .Param("scale", 1.0)
      .Param("return_scores", "raw");
  if (kind == "log_span") builder.Param("relative_max_distance", max_distance);
  std::vector<double> scores = RunByName(builder.request()).at("scores");
  for (double& score : scores) score -= 1;  // q.k
  return scores;
}

TEST_P(Disentangled, RowsAreThoseOfThePaper) {
  // Equation 2 with k = 3: 0 for i - j <= -3, 5 for i - j >= 3, else i - j + 3.
  for (const char* table : {"relative_keys", "relative_queries"}) {
    const std::vector<double> rows = Rows("span", 6, 0, table);
    for (int i = 0; i < 9; ++i) {
      for (int j = 0; j < 9; ++j) {
        const double expected = i - j <= -3 ? 0 : i - j >= 3 ? 5 : i - j + 3;
        EXPECT_EQ(rows[static_cast<size_t>(9 * i + j)], expected) << table << " " << i << " " << j;
      }
    }
  }
}

TEST_P(Disentangled, LogarithmicBucketsFollowTheirFormula) {
  // 8 buckets, exact up to 4, then ceil(log(x / 4) / log(15 / 4) * 3) + 4 with max_distance 16:
  // 5 -> 5, 6 -> 5, 7 -> 6, 8 -> 6 (computed by hand), and the same with a minus sign.
  const double bucket[] = {0, 1, 2, 3, 4, 5, 5, 6, 6};
  const std::vector<double> rows = Rows("log_span", 16, 16, "relative_keys");
  for (int j = 0; j < 9; ++j) {
    EXPECT_EQ(rows[static_cast<size_t>(9 * 8 + j)], 8 + bucket[8 - j]) << j;
    EXPECT_EQ(rows[static_cast<size_t>(j)], 8 - bucket[j]) << j;
  }
}

TEST_P(Disentangled, DefaultScaleCountsTheTerms) {
  AttentionCase c = Small(RelativeRows::kSpan, 32);
  const Results implied = RunAttention(c);
  c.scalars.scale = 1 / std::sqrt(3 * 16.0);
  EXPECT_EQ(Bits(implied.output), Bits(RunAttention(c).output));
}

TEST_P(Disentangled, ReducesToShawWithItsTableTurnedAround) {
  // Row i - j + k of 2 k rows is row j - i + k of the mirrored table, as long as nothing is
  // clipped.
  AttentionCase c = Small(RelativeRows::kSpan, 100, 4, 20, 20);
  c.tensors.erase("relative_queries");
  c.scalars.scale = 0.3;
  const std::vector<float> spans = RunAttention(c).output.Elements();
  const Buffer<float> table = c.tensors["relative_keys"].buffer;
  c.tensors["relative_keys"].buffer = Buffer<float>({1, 4, 101, 16}, Layout::kDense, 0.0f);
  c.tensors["relative_keys"].buffer.ForEach(
      [&](int64_t, int64_t h, int64_t r, int64_t d, float& x) {
        if (r > 0) x = table(0, h, 100 - r, d);
      });
  c.scalars.relative_rows = RelativeRows::kClip;
  const std::vector<float> clipped = RunAttention(c).output.Elements();
  for (size_t n = 0; n < spans.size(); ++n) EXPECT_NEAR(spans[n], clipped[n], 1e-6);
}

TEST_P(Disentangled, MaskedNanDoesNotMatter) {
  AttentionCase c = Small(RelativeRows::kSpan, 32);
  c.scalars.query_offset = QueryOffset::At(0);
  c.key_lengths = {100, 389};
  const Results clean = RunAttention(c);
  for (int64_t d = 0; d < 9; ++d) c.v(0, 1, 100, d) = c.k(0, 1, 100, d) = std::nanf("");
  EXPECT_EQ(Bits(clean.output), Bits(RunAttention(c).output));
}

TEST(DisentangledErrors, NameTheArgument) {
  const auto refused = [](const AttentionCase& c, ErrorCode code, const std::string& name) {
    try {
      RunAttention(c);
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
  };
  refused(Small(RelativeRows::kSpan, 33), ErrorCode::kShape, "relative_keys");
  refused(Small(RelativeRows::kLogSpan, 6), ErrorCode::kShape, "relative_keys");
  AttentionCase c = Small(RelativeRows::kLogSpan, 64);
  c.scalars.relative_max_distance = 48;
  refused(c, ErrorCode::kRange, "relative_max_distance");
}

}  // namespace
}  // namespace heed::testing
