// T5's bucketed bias: published buckets, both directions, and its limits.
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

class T5Relative : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(T5Relative);

AttentionCase Small(int64_t num_buckets, int64_t q_len = 33, int64_t kv_len = 390) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = q_len,
                              .kv_len = kv_len,
                              .head_dim = 16,
                              .head_dim_v = 9});
  Random random(1);
  c.AddTensor("bucket_bias", {num_buckets, 4}, random);
  c.scalars.query_offset = QueryOffset::End();
  return c;
}

// The buckets of distances -10 to 9, as the biases of one query among keys that say nothing.
std::vector<double> Buckets(const std::string& direction, int64_t num_buckets,
                            int64_t max_distance) {
  RequestBuilder builder("t5_relative");
  std::vector<float> numbers(static_cast<size_t>(num_buckets));
  for (size_t n = 0; n < numbers.size(); ++n) numbers[n] = static_cast<float>(n);
  builder.Floats("q", {1, 1, 1, 1}, {0})
      .Floats("k", {1, 1, 20, 1}, std::vector<float>(20, 1.0f))
      .Floats("v", {1, 1, 20, 1}, std::vector<float>(20, 1.0f))
      .Floats("bucket_bias", {num_buckets, 1}, numbers)
      .Param("query_offset", 10.0)
      .Param("bucket_direction", direction)
      .Param("bucket_max_distance", static_cast<double>(max_distance))
      .Param("return_scores", "biased");
  return RunByName(builder.request()).at("scores");
}

TEST_P(T5Relative, BucketsAreThosePublished) {
  // google-research, imp/max, embeddings_test.py, test_get_relative_position_bucket.
  EXPECT_EQ(Buckets("causal", 4, 3),
            (std::vector<double>{3, 3, 3, 3, 3, 3, 3, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(Buckets("causal", 8, 10),
            (std::vector<double>{7, 7, 7, 6, 5, 4, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(Buckets("causal", 16, 9),
            (std::vector<double>{15, 15, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(Buckets("bidirectional", 4, 4),
            (std::vector<double>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 3, 3, 3, 3, 3, 3, 3, 3, 3}));
}

TEST_P(T5Relative, MatchesReferenceInBothDirections) {
  for (const T5Direction direction : {T5Direction::kBidirectional, T5Direction::kCausal}) {
    for (const int64_t num_buckets : {4, 32}) {
      AttentionCase c = Small(num_buckets);
      c.scalars.bucket_direction = direction;
      for (const int64_t max_distance : {20, 128, 1000}) {
        c.scalars.bucket_max_distance = max_distance;
        ExpectMatchesReference(c);
      }
    }
  }
}

TEST_P(T5Relative, FarQueriesReadTheLastBuckets) {
  for (const int64_t position : {-100000, 100000}) {
    AttentionCase c = Small(8, 5, 20);
    c.scalars.query_offset = QueryOffset::PerBatch({position, 3});
    ExpectMatchesReference(c);
  }
}

TEST_P(T5Relative, ReducesToLuongDotWhenAllBucketsAreAlike) {
  AttentionCase c = Small(8);
  c.tensors["bucket_bias"].buffer.ForEach(
      [](int64_t, int64_t, int64_t, int64_t, float& x) { x = 0.0f; });
  Request request = c.request();
  const std::vector<float> t5 = RunAttention(c).output.Elements();
  c.tensors.clear();
  const std::vector<float> plain = RunAttention(c).output.Elements();
  for (size_t n = 0; n < t5.size(); ++n) EXPECT_NEAR(t5[n], plain[n], 2e-6);
}

TEST_P(T5Relative, ReducesToAlibiWithATableOfDistances) {
  AttentionCase c = Small(8);
  c.tensors.clear();
  c.tensors["distance_bias"] = {Buffer<float>({1, 1, 4, 2001}, Layout::kDense, 0.0f), 2};
  const std::vector<float> slopes = AlibiSlopes(4);
  c.tensors["distance_bias"].buffer.ForEach([&](int64_t, int64_t, int64_t h, int64_t n, float& x) {
    x = -slopes[static_cast<size_t>(h)] * static_cast<float>(std::abs(n - 1000));
  });
  const Results table = RunAttention(c);
  c.tensors.clear();
  c.alibi_slopes = slopes;
  const std::vector<float> alibi = RunAttention(c).output.Elements();
  const std::vector<float> output = table.output.Elements();
  for (size_t n = 0; n < alibi.size(); ++n) EXPECT_NEAR(output[n], alibi[n], 2e-6);
}

TEST_P(T5Relative, ABiasOfMinusInfinityIsNotKept) {
  AttentionCase c = Small(8);
  for (int64_t h = 0; h < 4; ++h) {
    c.tensors["bucket_bias"].buffer(0, 0, 0, h) = -std::numeric_limits<float>::infinity();
  }
  ExpectMatchesReference(c);
}

TEST_P(T5Relative, MaskedNanDoesNotMatter) {
  AttentionCase c = Small(8);
  c.scalars.query_offset = QueryOffset::At(0);
  c.key_lengths = {100, 389};
  const Results clean = RunAttention(c);
  for (int64_t d = 0; d < 9; ++d) c.v(0, 1, 100, d) = c.k(0, 1, 100, d) = std::nanf("");
  EXPECT_EQ(Bits(clean.output), Bits(RunAttention(c).output));
}

TEST(T5RelativeErrors, NameTheArgument) {
  const auto refused = [](const AttentionCase& c, ErrorCode code, const std::string& name) {
    try {
      RunAttention(c);
      ADD_FAILURE() << name << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
  };
  refused(Small(3), ErrorCode::kRange, "num_buckets");
  AttentionCase c = Small(32);
  c.scalars.bucket_max_distance = 8;
  refused(c, ErrorCode::kRange, "max_distance");
  c = Small(32);
  c.scalars.query_offset = QueryOffset();
  refused(c, ErrorCode::kOption, "bucket_bias");
  Random random(1);
  c = Small(32);
  c.AddTensor("bucket_bias", {32, 3}, random);
  refused(c, ErrorCode::kShape, "bucket_bias");
  c = Small(32);
  c.AddTensor("distance_bias", {4, 10}, random);
  refused(c, ErrorCode::kShape, "distance_bias");
}

}  // namespace
}  // namespace heed::testing
