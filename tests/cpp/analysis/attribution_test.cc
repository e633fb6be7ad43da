// Gradient times attention against the oracle's weights, and against what the sum of all terms is.
#include <cmath>
#include <limits>
#include <vector>

#include "analysis_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/operations.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class AttributionTest : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AttributionTest);

Buffer<float> Arriving(const AttentionCase& c) {
  const Sizes& s = c.sizes;
  Random random(9);
  Buffer<float> d_out({s.batch, s.num_heads, s.q_len, s.head_dim_v}, Layout::kPadded, kNan);
  d_out.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x = random.Normal(); });
  return d_out;
}

struct Attributed {
  Buffer<float> columns, pairs;
};

Attributed Attribute(const AttentionCase& c, const Buffer<float>& d_out, AttributionTerms terms,
                     const WeightsRange& range, ThreadPool* pool = nullptr) {
  const Sizes& s = c.sizes;
  Attributed to = {
      {{s.batch, s.num_heads, s.kv_len, 1}, Layout::kPadded, kNan},
      {{s.batch, s.num_heads, range.q_end - range.q_begin, range.k_end - range.k_begin},
       Layout::kPadded,
       kNan}};
  Attribution(c.q.view(), c.k.view(), c.v.view(), d_out.view(), c.options(), terms, range,
              {to.columns.view(), to.pairs.view()}, pool);
  EXPECT_TRUE(to.columns.GapsAreUntouched());
  EXPECT_TRUE(to.pairs.GapsAreUntouched());
  return to;
}

WeightsRange All(const AttentionCase& c) { return {0, c.sizes.q_len, 0, c.sizes.kv_len}; }

void ExpectAttributionMatches(const AttentionCase& c, AttributionTerms terms,
                              const WeightsRange& range) {
  SCOPED_TRACE(c.Describe());
  const Sizes& s = c.sizes;
  const Buffer<float> d_out = Arriving(c);
  Attributed actual = Attribute(c, d_out, terms, range);
  const std::vector<double> weights = RunOracle(c).at("weights");
  const std::vector<RowBound> bounds = BoundsOf(c);
  std::vector<double> sums(static_cast<size_t>(s.batch * s.num_heads * s.kv_len)),
      room(sums.size());
  actual.pairs.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t j, float& pair) {
    const int64_t query = i + range.q_begin, key = j + range.k_begin;
    const size_t row = static_cast<size_t>((b * s.num_heads + h) * s.q_len + query);
    double dot = 0, size = 0;
    for (int64_t e = 0; e < s.head_dim_v; ++e) {
      const double x = d_out(b, h, query, e), y = c.v(b, h * s.num_kv_heads / s.num_heads, key, e);
      dot += x * y;
      size += std::abs(x * y);
    }
    double term = weights[row * static_cast<size_t>(s.kv_len) + static_cast<size_t>(key)] * dot;
    if (terms == AttributionTerms::kPositive) term = std::max(0.0, term);
    const double bound = 2 * bounds[row].Weight() * size;
    EXPECT_NEAR(pair, term, bound) << b << " " << h << " " << query << " " << key;
    const size_t column = static_cast<size_t>((b * s.num_heads + h) * s.kv_len + key);
    sums[column] += term;
    room[column] += bound;
  });
  size_t n = 0;
  actual.columns.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& sum) {
    EXPECT_NEAR(sum, sums[n], room[n] + 1e-12);
    ++n;
  });
}

TEST_P(AttributionTest, IsWeightTimesItsGradient) {
  for (const AttentionCase& c : AnalysisCases()) {
    if (c.sizes.q_len * c.sizes.kv_len > 20000) continue;
    ExpectAttributionMatches(c, AttributionTerms::kSigned, All(c));
    ExpectAttributionMatches(c, AttributionTerms::kPositive, All(c));
  }
}

TEST_P(AttributionTest, RangesAreParts) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = 40,
                              .kv_len = 600,
                              .head_dim = 5,
                              .head_dim_v = 7});
  ExpectAttributionMatches(c, AttributionTerms::kSigned, {3, 38, 250, 520});
  ExpectAttributionMatches(c, AttributionTerms::kPositive, {0, 1, 599, 600});
  ExpectAttributionMatches(c, AttributionTerms::kSigned, {7, 7, 0, 600});
}

// sum_j a_ij = d_out_i . output_i.
TEST_P(AttributionTest, TermsOfARowAddUpToWhatArrivesAtTheOutput) {
  AttentionCase c = MakeCase({.q_len = 33, .kv_len = 70, .head_dim = 8, .head_dim_v = 9});
  const Buffer<float> d_out = Arriving(c);
  const Attributed actual = Attribute(c, d_out, AttributionTerms::kSigned, All(c));
  const Results results = RunAttention(c);
  for (int64_t i = 0; i < 33; ++i) {
    double terms = 0, arrives = 0;
    for (int64_t j = 0; j < 70; ++j) terms += actual.pairs(0, 0, i, j);
    for (int64_t e = 0; e < 9; ++e)
      arrives += double{d_out(0, 0, i, e)} * results.output(0, 0, i, e);
    EXPECT_NEAR(terms, arrives, 1e-5);
  }
}

TEST_P(AttributionTest, HiddenNumbersCannotMatter) {
  AttentionCase c = MakeCase({.q_len = 6, .kv_len = 6, .head_dim = 3, .head_dim_v = 2});
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(-1);            // query 0 sees nothing
  for (int64_t e = 0; e < 2; ++e) c.v(0, 0, 5, e) = kNan;  // nobody sees key 5
  Buffer<float> d_out = Arriving(c);
  d_out(0, 0, 0, 0) = kInf;
  const Attributed actual = Attribute(c, d_out, AttributionTerms::kSigned, All(c));
  for (int64_t j = 0; j < 6; ++j) {
    EXPECT_TRUE(std::isfinite(actual.columns(0, 0, j, 0)));
    EXPECT_EQ(actual.pairs(0, 0, 0, j), 0.0f);
  }
  EXPECT_EQ(actual.columns(0, 0, 5, 0), 0.0f);
}

TEST_P(AttributionTest, SameBitsForAnyNumberOfThreads) {
  AttentionCase c = MakeCase({.batch = 1,
                              .num_heads = 2,
                              .num_kv_heads = 1,
                              .q_len = 300,
                              .kv_len = 300,
                              .head_dim = 8,
                              .head_dim_v = 8});
  const Buffer<float> d_out = Arriving(c);
  const std::unique_ptr<ThreadPool> one = MakeThreadPool(1);
  const std::vector<float> first =
      Attribute(c, d_out, AttributionTerms::kPositive, All(c), one.get()).columns.Elements();
  for (const int threads : {2, 3}) {
    const std::unique_ptr<ThreadPool> pool = MakeThreadPool(threads);
    EXPECT_EQ(
        Attribute(c, d_out, AttributionTerms::kPositive, All(c), pool.get()).columns.Elements(),
        first);
  }
}

TEST(AttributionBoundary, WhatDoesNotFitIsRefused) {
  AttentionCase c = MakeCase(
      {.num_heads = 1, .num_kv_heads = 1, .q_len = 4, .kv_len = 5, .head_dim = 3, .head_dim_v = 2});
  const Buffer<float> d_out = Arriving(c);
  const auto refusal = [&](TensorView<const float> arriving, const WeightsRange& range) {
    float sums[5];
    try {
      Attribution(c.q.view(), c.k.view(), c.v.view(), arriving, c.options(),
                  AttributionTerms::kSigned, range, {.column_sums = Contiguous(sums, 1, 1, 5, 1)});
    } catch (const Error& error) {
      return std::string(ErrorCodeName(error.code())) + ": " + error.what();
    }
    return std::string();
  };
  EXPECT_EQ(refusal(d_out.view(), {0, 4, 0, 5}), "");
  EXPECT_THAT(refusal(d_out.view(), {0, 5, 0, 5}), ::testing::HasSubstr("range: queries = [0, 5)"));
  TensorView<const float> wrong = d_out.view();
  wrong.shape[2] = 3;
  EXPECT_THAT(refusal(wrong, {0, 4, 0, 5}), ::testing::HasSubstr("shape: d_out has shape"));
  Random random(1);
  c.AddTensor("relative_values", {3, 2}, random);
  c.scalars.query_offset = QueryOffset::At(0);
  EXPECT_THAT(refusal(d_out.view(), {0, 4, 0, 5}),
              ::testing::HasSubstr("unsupported: attribution with relative_values"));
}

TEST(AttributionOperation, ByNameIsTheFunction) {
  AttentionCase c = MakeCase(
      {.num_heads = 1, .num_kv_heads = 1, .q_len = 4, .kv_len = 5, .head_dim = 3, .head_dim_v = 2});
  Buffer<float> d_out = Arriving(c);
  Request request = c.request();
  request.id = "attribution";
  const std::vector<int64_t> shape = {1, 1, 4, 2};
  const std::vector<float> numbers = d_out.Elements();
  request.inputs.push_back(
      {"d_out", ContiguousTensor(DType::kFloat32, const_cast<float*>(numbers.data()), shape)});
  for (const auto& [name, value] : {std::pair("q_begin", 1.0), std::pair("q_end", 3.0),
                                    std::pair("k_begin", 0.0), std::pair("k_end", 5.0)}) {
    request.params.push_back({name, value});
  }
  for (const char* name : {"positive", "column_sums", "pairs"}) {
    request.params.push_back({name, true});
  }
  std::vector<float> columns(5, kNan), pairs(10, kNan);
  const std::vector<int64_t> columns_shape = {1, 1, 5}, pairs_shape = {1, 1, 2, 5};
  const NamedTensor outputs[] = {
      {"column_sums", ContiguousTensor(DType::kFloat32, columns.data(), columns_shape)},
      {"pairs", ContiguousTensor(DType::kFloat32, pairs.data(), pairs_shape)}};
  RunOperation(request, outputs);
  const Attributed expected = Attribute(c, d_out, AttributionTerms::kPositive, {1, 3, 0, 5});
  EXPECT_EQ(columns, expected.columns.Elements());
  EXPECT_EQ(pairs, expected.pairs.Elements());
}

}  // namespace
}  // namespace heed::testing
