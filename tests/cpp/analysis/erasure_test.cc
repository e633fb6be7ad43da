// Erasure against attention without the key; head importance and pruning.
#include <cmath>
#include <limits>
#include <vector>

#include "analysis_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using ::testing::ElementsAre;

class ErasureTest : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(ErasureTest);

// The oracle's output with key j hidden from all queries.
std::vector<double> OutputWithout(AttentionCase c, int64_t j) {
  const auto [batch, heads, kv_heads, q_len, kv_len, dim, dim_v] = c.sizes;
  if (!c.keep.has_value()) c.keep = Buffer<uint8_t>({1, 1, q_len, kv_len}, Layout::kDense, 1);
  c.keep.ForEach([&](int64_t, int64_t, int64_t, int64_t key, uint8_t& kept) {
    if (key == j) kept = 0;
  });
  return RunOracle(c).at("output");
}

double Distance(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t d = 0; d < a.size(); ++d) sum += (a[d] - b[d]) * (a[d] - b[d]);
  return std::sqrt(sum);
}

void ExpectErasureMatches(const AttentionCase& c, int64_t q_begin, int64_t q_end) {
  SCOPED_TRACE(c.Describe());
  const auto [batch, heads, kv_heads, q_len, kv_len, dim, dim_v] = c.sizes;
  Buffer<float> change({batch, heads, q_end - q_begin, kv_len}, Layout::kPadded, kNan);
  Buffer<float> without({batch, heads, kv_len, dim_v}, Layout::kPadded, kNan);
  ErasureOutputs outputs = {.change = change.view()};
  if (q_end - q_begin == 1) outputs.without = without.view();
  Erasure(c.q.view(), c.k.view(), c.v.view(), c.options(), q_begin, q_end, outputs);
  EXPECT_TRUE(change.GapsAreUntouched());
  const std::vector<double> output = RunOracle(c).at("output");
  const std::vector<RowBound> bounds = BoundsOf(c);
  const size_t width = static_cast<size_t>(dim_v);
  for (int64_t j = 0; j < kv_len; ++j) {
    const std::vector<double> erased = OutputWithout(c, j);
    change.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t key, float& value) {
      if (key != j) return;
      const size_t row = static_cast<size_t>((b * heads + h) * q_len + i + q_begin);
      const auto whole = std::span(output).subspan(row * width, width);
      const auto rest = std::span(erased).subspan(row * width, width);
      const double bound = 4 * bounds[row].Output() * std::sqrt(static_cast<double>(dim_v));
      EXPECT_NEAR(value, Distance(whole, rest), bound) << b << " " << h << " " << i << " " << j;
      for (size_t d = 0; d < width && outputs.without.has_value(); ++d) {
        EXPECT_NEAR(without(b, h, j, static_cast<int64_t>(d)), rest[d], bound);
      }
    });
  }
}

TEST_P(ErasureTest, MatchesAttentionWithoutTheKey) {
  AttentionCase grouped = MakeCase({.batch = 2,
                                    .num_heads = 4,
                                    .num_kv_heads = 2,
                                    .q_len = 12,
                                    .kv_len = 20,
                                    .head_dim = 9,
                                    .head_dim_v = 5},
                                   1);
  grouped.sinks = {0.5f, -3, 1, 0};
  grouped.scalars.causal = true;
  grouped.scalars.query_offset = QueryOffset::At(-1);
  ExpectErasureMatches(grouped, 0, 12);
  ExpectErasureMatches(grouped, 7, 8);
  AttentionCase kernel = MakeCase({.q_len = 9, .kv_len = 9, .head_dim = 2, .head_dim_v = 3}, 2);
  kernel.scalars.score = Score::kSquaredDistance;
  kernel.scalars.normalize = Normalize::kKernelSum;
  kernel.scalars.kernel = Kernel::kEpanechnikov;
  kernel.width = {2.0f};
  ExpectErasureMatches(kernel, 2, 9);
}

// Weights are shares of a sum, or the call is refused: what is left is not a quotient.
TEST_P(ErasureTest, EveryNormalizerIsRightOrRefused) {
  Random random(3);
  for (int n = 0; n <= static_cast<int>(Normalize::kCope); ++n) {
    const Normalize normalize = static_cast<Normalize>(n);
    if (normalize == Normalize::kKernelSum) continue;  // MatchesAttentionWithoutTheKey
    AttentionCase c = MakeCase({.q_len = 6, .kv_len = 10, .head_dim = 4, .head_dim_v = 3}, 6);
    c.scalars.normalize = normalize;
    if (normalize == Normalize::kCope) AddCopeTable(c, 1, 5, random);
    const bool shares = normalize == Normalize::kSoftmax || normalize == Normalize::kSoftmax1 ||
                        normalize == Normalize::kAverage;
    if (shares) {
      ExpectErasureMatches(c, 0, 6);
      continue;
    }
    Buffer<float> change({1, 2, 6, 10}, Layout::kDense, kNan);
    try {
      Erasure(c.q.view(), c.k.view(), c.v.view(), c.options(), 0, 6, {.change = change.view()});
      ADD_FAILURE() << NormalizeName(normalize) << " is accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << NormalizeName(normalize);
    }
    change.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) {
      EXPECT_TRUE(std::isnan(x)) << "written before it was refused";
    });
  }
}

TEST_P(ErasureTest, KeysThatTakeNearlyAllDoNotCancel) {
  // The largest weight is 1 - 1e-7 and more: (o - p v) / (1 - p) would be noise.
  AttentionCase c = MakeCase(
      {.num_heads = 2, .num_kv_heads = 2, .q_len = 6, .kv_len = 11, .head_dim = 8, .head_dim_v = 6},
      3);
  c.scalars.scale = 3.0;
  ExpectErasureMatches(c, 0, 6);
  c.sinks = {-2.0f, 4.0f};
  ExpectErasureMatches(c, 5, 6);
}

TEST_P(ErasureTest, WithoutItsOnlyKeyARowIsZeros) {
  AttentionCase c = MakeCase({.q_len = 2, .kv_len = 2, .head_dim_v = 3});
  c.scalars.causal = true;
  Buffer<float> change({1, 2, 1, 2}, Layout::kDense, kNan);
  Buffer<float> without({1, 2, 2, 3}, Layout::kDense, kNan);
  c.v(0, 0, 1, 0) = c.v(0, 1, 1, 0) = kNan;  // hidden from query 0
  Erasure(c.q.view(), c.k.view(), c.v.view(), c.options(), 0, 1,
          {.change = change.view(), .without = without.view()});
  for (const int64_t h : {0, 1}) {
    double norm = 0;
    for (int64_t d = 0; d < 3; ++d) {
      EXPECT_EQ(without(0, h, 0, d), 0.0f);
      EXPECT_EQ(without(0, h, 1, d), c.v(0, h, 0, d)) << "a hidden key changes nothing";
      norm += static_cast<double>(c.v(0, h, 0, d)) * static_cast<double>(c.v(0, h, 0, d));
    }
    EXPECT_NEAR(change(0, h, 0, 0), std::sqrt(norm), 1e-6);
    EXPECT_EQ(change(0, h, 0, 1), 0.0f);
  }
}

TEST(Erasure, RefusesWhatDoesNotFit) {
  const AttentionCase c = MakeCase({.q_len = 3, .kv_len = 5});
  Buffer<float> change({1, 2, 3, 5}, Layout::kDense, 0);
  Buffer<float> without({1, 2, 5, 64}, Layout::kDense, 0);
  const auto erase = [&](int64_t begin, int64_t end, const ErasureOutputs& out) {
    Erasure(c.q.view(), c.k.view(), c.v.view(), {}, begin, end, out);
  };
  EXPECT_NO_THROW(erase(0, 3, {.change = change.view()}));
  EXPECT_THROW(erase(0, 4, {.change = change.view()}), Error);
  EXPECT_THROW(erase(1, 3, {.change = change.view()}), Error);
  EXPECT_THROW(erase(0, 3, {.without = without.view()}), Error) << "more than one query";
  EXPECT_NO_THROW(erase(2, 3, {.without = without.view()}));
}

TEST(Heads, ImportanceIsTheNormOfTheContribution) {
  // Two heads of one column: rows (3, 1) and (4, 1); W maps to three numbers.
  Buffer<float> output({1, 2, 2, 1}, Layout::kPadded, kNan);
  output(0, 0, 0, 0) = 3, output(0, 0, 1, 0) = -4;
  output(0, 1, 0, 0) = 1, output(0, 1, 1, 0) = 1;
  EXPECT_THAT(HeadImportance(output.view(), {}), ElementsAre(3.5f, 1.0f));
  Buffer<float> w_o({1, 1, 3, 2}, Layout::kDense, 0);
  w_o(0, 0, 1, 0) = 2;
  w_o(0, 0, 0, 1) = 3;
  w_o(0, 0, 2, 1) = -4;
  EXPECT_THAT(HeadImportance(output.view(), w_o.view()), ElementsAre(7.0f, 5.0f));
}

TEST(Heads, PruningKeepsTheMostImportantAndIsAKeepTensor) {
  const std::vector<float> importance = {1, 3, 2, 3};
  EXPECT_THAT(PruneHeads(importance, 2), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(PruneHeads(importance, 1), ElementsAre(0, 1, 0, 0)) << "ties to the lower index";
  EXPECT_THROW(PruneHeads(importance, 5), Error);
  AttentionCase c = MakeCase({.num_heads = 4, .num_kv_heads = 2, .q_len = 3, .kv_len = 3});
  const Results all = RunAttention(c);
  const std::vector<uint8_t> kept = PruneHeads(importance, 2);
  c.keep = Buffer<uint8_t>({1, 4, 1, 1}, Layout::kDense, 0);
  for (int64_t h = 0; h < 4; ++h) c.keep(0, h, 0, 0) = kept[static_cast<size_t>(h)];
  Results pruned = RunAttention(c);
  pruned.output.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
    EXPECT_EQ(x, kept[static_cast<size_t>(h)] != 0 ? all.output(b, h, i, d) : 0.0f);
  });
}

}  // namespace
}  // namespace heed::testing
