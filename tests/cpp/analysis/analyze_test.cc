// heed::Analyze and heed::WeightsTile against loops over the whole matrix.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "analysis_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using ::testing::ElementsAre;

struct Stats {
  Buffer<float> entropy, top, max, distance, columns, lse;
  Buffer<int32_t> top_index, max_index;
};

Stats RunAnalyze(const AttentionCase& c, int64_t top_k, TensorView<const float> lse = {},
                 ThreadPool* pool = nullptr) {
  const auto [batch, heads, kv_heads, q_len, kv_len, dim, dim_v] = c.sizes;
  Stats s;
  const Extents rows = {batch, heads, q_len, 1};
  s.entropy = Buffer<float>(rows, Layout::kPadded, kNan);
  s.top = Buffer<float>({batch, heads, q_len, top_k}, Layout::kPadded, kNan);
  s.max = Buffer<float>(rows, Layout::kDense, kNan);
  s.distance = Buffer<float>(rows, Layout::kDense, kNan);
  s.columns = Buffer<float>({batch, heads, kv_len, 1}, Layout::kPadded, kNan);
  s.top_index = Buffer<int32_t>({batch, heads, q_len, top_k}, Layout::kPadded, -7);
  s.max_index = Buffer<int32_t>(rows, Layout::kDense, -7);
  AnalysisOutputs out = {.entropy = s.entropy.view(),
                         .top_weights = s.top.view(),
                         .top_indices = s.top_index.view(),
                         .max_weight = s.max.view(),
                         .max_index = s.max_index.view(),
                         .expected_distance = s.distance.view(),
                         .column_sums = s.columns.view()};
  if (!lse.has_value() && HasLse(c)) {
    s.lse = Buffer<float>(rows, Layout::kDense, kNan);
    out.lse = s.lse.view();
  }
  Analyze(c.q.view(), c.k.view(), c.options(), lse, out, pool);
  EXPECT_TRUE(s.entropy.GapsAreUntouched() && s.top.GapsAreUntouched() &&
              s.columns.GapsAreUntouched() && s.top_index.GapsAreUntouched());
  return s;
}

int64_t Position(const AttentionCase& c, int64_t i) {
  const QueryOffset& offset = c.scalars.query_offset;
  if (offset.kind() == QueryOffset::Kind::kEnd) return i + c.sizes.kv_len - c.sizes.q_len;
  return offset.positions().empty() ? i : i + offset.positions()[0];
}

void ExpectTopMatches(const AttentionCase& c, const Stats& s, std::span<const double> row,
                      double bound, int64_t b, int64_t h, int64_t i) {
  const std::vector<int64_t> ranking = reference::Ranking(row);
  const int64_t top_k = s.top.shape()[3];
  EXPECT_EQ(s.max(b, h, i, 0), s.top(b, h, i, 0));
  EXPECT_EQ(s.max_index(b, h, i, 0), s.top_index(b, h, i, 0));
  std::vector<int32_t> seen;
  for (int64_t n = 0; n < top_k; ++n) {
    const int32_t index = s.top_index(b, h, i, n);
    if (n >= static_cast<int64_t>(ranking.size()) || index < 0) {
      // Weights that vanish in float32 are not listed.
      EXPECT_EQ(index, -1);
      EXPECT_EQ(s.top(b, h, i, n), 0.0f);
      if (n < static_cast<int64_t>(ranking.size())) {
        // Normalisers with a threshold may find it on the other side of a key.
        const bool threshold = c.scalars.normalize == Normalize::kRelu ||
                               c.scalars.normalize == Normalize::kReluSquared ||
                               c.scalars.normalize == Normalize::kSparsemax ||
                               c.scalars.normalize == Normalize::kEntmax15;
        EXPECT_LT(row[static_cast<size_t>(ranking[static_cast<size_t>(n)])],
                  threshold ? bound : 1e-37);
      }
      continue;
    }
    // Two weights that are equal within rounding may trade places.
    const double best = row[static_cast<size_t>(ranking[static_cast<size_t>(n)])];
    EXPECT_NEAR(s.top(b, h, i, n), best, bound);
    EXPECT_NEAR(row[static_cast<size_t>(index)], best, bound);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), index), 0) << "a key is listed twice";
    seen.push_back(index);
  }
}

void ExpectMatchesOracle(const AttentionCase& c, const Stats& s) {
  const reference::WeightMaps maps = reference::Weights(c.request());
  const std::vector<RowBound> bounds = BoundsOf(c);
  const double kv_len = static_cast<double>(c.sizes.kv_len);
  size_t row_index = 0;
  double worst_bound = 0;
  for (int64_t b = 0; b < maps.batch; ++b) {
    for (int64_t h = 0; h < maps.num_heads; ++h) {
      for (int64_t i = 0; i < maps.q_len; ++i) {
        const auto row = maps.Row(b, h, i);
        const double bound = bounds[row_index++].Weight();
        worst_bound = std::max(worst_bound, bound);
        const int64_t position = Position(c, i);
        const double reach = static_cast<double>(std::abs(position)) + kv_len;
        EXPECT_NEAR(s.entropy(b, h, i, 0), reference::Entropy(row), bound * (1 + std::log(kv_len)));
        EXPECT_NEAR(s.distance(b, h, i, 0), reference::ExpectedDistance(row, position),
                    bound * reach);
        ExpectTopMatches(c, s, row, bound, b, h, i);
      }
      const std::vector<double> columns = reference::ColumnSums(maps, b, h);
      for (int64_t j = 0; j < maps.kv_len; ++j) {
        EXPECT_NEAR(s.columns(b, h, j, 0), columns[static_cast<size_t>(j)],
                    worst_bound * static_cast<double>(maps.q_len));
      }
    }
  }
}

class AnalyzeTest : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AnalyzeTest);

TEST_P(AnalyzeTest, MatchesReference) {
  for (const AttentionCase& c : AnalysisCases()) {
    SCOPED_TRACE(c.Describe());
    ExpectMatchesOracle(c, RunAnalyze(c, std::min<int64_t>(7, c.sizes.kv_len)));
  }
}

// Every case with dot products under every other normaliser.
std::vector<AttentionCase> CasesOf(Normalize normalize) {
  std::vector<AttentionCase> cases;
  Random random(17);
  for (AttentionCase c : AnalysisCases()) {
    if (c.scalars.normalize != Normalize::kSoftmax) continue;
    c.scalars.normalize = normalize;
    c.scalars.top_k = 5;
    if (!HasLse(c) || normalize == Normalize::kSoftmax1) c.sinks.clear();
    if (normalize == Normalize::kCope) AddCopeTable(c, 1, 9, random);
    if (normalize == Normalize::kHard || normalize == Normalize::kTopK) MakeScoresExact(c);
    cases.push_back(std::move(c));
  }
  return cases;
}

constexpr Normalize kNormalizers[] = {
    Normalize::kSoftmax1, Normalize::kSigmoid,       Normalize::kRelu, Normalize::kReluSquared,
    Normalize::kAverage,  Normalize::kHard,          Normalize::kTopK, Normalize::kSparsemax,
    Normalize::kEntmax15, Normalize::kStickBreaking, Normalize::kCope};

TEST_P(AnalyzeTest, MatchesReferenceForEveryNormalizer) {
  for (const Normalize normalize : kNormalizers) {
    for (const AttentionCase& c : CasesOf(normalize)) {
      SCOPED_TRACE(c.Describe());
      ExpectMatchesOracle(c, RunAnalyze(c, std::min<int64_t>(4, c.sizes.kv_len)));
      if (HasFailure()) return;
    }
  }
}

TEST_P(AnalyzeTest, TilesAreTheWeightsOfEveryNormalizer) {
  for (const Normalize normalize : kNormalizers) {
    for (const AttentionCase& c : CasesOf(normalize)) {
      SCOPED_TRACE(c.Describe());
      const auto [batch, heads, kv_heads, q_len, kv_len, dim, dim_v] = c.sizes;
      const Values expected = RunOracle(c);
      const std::vector<RowBound> bounds = BoundsOf(c);
      const WeightsRange range = {q_len / 4, q_len, kv_len / 3, kv_len};
      Buffer<float> tile({batch, heads, q_len - range.q_begin, kv_len - range.k_begin},
                         Layout::kPadded, kNan);
      WeightsTile(c.q.view(), c.k.view(), c.options(), {}, range, tile.view());
      tile.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t j, float& weight) {
        const int64_t row = (b * heads + h) * q_len + i + range.q_begin;
        EXPECT_NEAR(weight,
                    expected.at("weights")[static_cast<size_t>(row * kv_len + j + range.k_begin)],
                    bounds[static_cast<size_t>(row)].Weight());
      });
      if (HasFailure()) return;
    }
  }
}

TEST_P(AnalyzeTest, GivenLseSparesTheFirstPass) {
  for (const AttentionCase& c : AnalysisCases()) {
    if (!HasLse(c)) continue;
    SCOPED_TRACE(c.Describe());
    const Results attended = RunAttention(c);
    EXPECT_EQ(Bits(RunAnalyze(c, 1).lse), Bits(attended.lse));
    ExpectMatchesOracle(c, RunAnalyze(c, 1, attended.lse.view()));
  }
}

TEST_P(AnalyzeTest, SameBitsForAnyNumberOfThreads) {
  AttentionCase c = MakeCase({.num_heads = 2, .num_kv_heads = 1, .q_len = 700, .kv_len = 300}, 2);
  c.scalars.query_offset = QueryOffset::At(0);
  const auto one = MakeThreadPool(1);
  const auto three = MakeThreadPool(3);
  const Stats a = RunAnalyze(c, 3, {}, one.get());
  const Stats b = RunAnalyze(c, 3, {}, three.get());
  EXPECT_EQ(Bits(a.columns), Bits(b.columns));
  EXPECT_EQ(Bits(a.entropy), Bits(b.entropy));
  EXPECT_EQ(Bits(a.distance), Bits(b.distance));
  EXPECT_EQ(Bits(a.top), Bits(b.top));
}

TEST_P(AnalyzeTest, EqualKeysShareEvenly) {
  // By hand: four equal keys; entropy log 4, position 1 is 1, 0, 1 and 2 away from them.
  AttentionCase c = MakeCase({.num_heads = 1, .num_kv_heads = 1, .q_len = 2, .kv_len = 4});
  c.k.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = 0.5f; });
  c.scalars.query_offset = QueryOffset::At(0);
  const Stats s = RunAnalyze(c, 4);
  EXPECT_NEAR(s.entropy(0, 0, 1, 0), std::log(4.0), 1e-6);
  EXPECT_NEAR(s.distance(0, 0, 1, 0), 1.0, 1e-6);
  EXPECT_THAT(s.columns.Elements(), ElementsAre(0.5f, 0.5f, 0.5f, 0.5f));
  for (const int64_t i : {0, 1}) {
    for (int32_t n = 0; n < 4; ++n) {
      EXPECT_EQ(s.top(0, 0, i, n), 0.25f);
      EXPECT_EQ(s.top_index(0, 0, i, n), n) << "ties go to the lower index";
    }
  }
}

TEST_P(AnalyzeTest, TiesAcrossTilesGoToTheLowerIndex) {
  AttentionCase c = MakeCase({.num_heads = 1, .num_kv_heads = 1, .q_len = 1, .kv_len = 900});
  c.k.ForEach([&](int64_t, int64_t, int64_t j, int64_t d, float& x) {
    x = j % 300 == 17 ? c.q(0, 0, 0, d) : 0.0f;
  });
  c.scalars.query_offset = QueryOffset::At(0);
  const Stats s = RunAnalyze(c, 5);
  EXPECT_THAT(s.top_index.Elements(), ElementsAre(17, 317, 617, 0, 1));
}

TEST_P(AnalyzeTest, EmptyRowsAreZeros) {
  AttentionCase c = MakeCase({.q_len = 3, .kv_len = 5});
  c.scalars.query_offset = QueryOffset::At(0);
  c.key_lengths = {0};
  const Stats s = RunAnalyze(c, 2);
  for (const Buffer<float>* buffer : {&s.entropy, &s.top, &s.max, &s.distance, &s.columns}) {
    EXPECT_THAT(buffer->Elements(), ::testing::Each(0.0f));
  }
  EXPECT_THAT(s.top_index.Elements(), ::testing::Each(-1));
  EXPECT_THAT(s.lse.Elements(), ::testing::Each(-kInf));
}

TEST_P(AnalyzeTest, MaskedNanDoesNotMatterAndVisibleNanStaysInItsRows) {
  AttentionCase c = MakeCase({.q_len = 5, .kv_len = 9});
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(0);
  const Stats clean = RunAnalyze(c, 3);
  c.k(0, 0, 3, 0) = kNan;
  const Stats s = RunAnalyze(c, 3);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(std::isnan(s.entropy(0, 0, i, 0)), i >= 3);
    EXPECT_EQ(std::isnan(s.top(0, 0, i, 2)), i >= 3);
    EXPECT_EQ(s.top_index(0, 0, i, 0), i >= 3 ? -1 : clean.top_index(0, 0, i, 0));
    EXPECT_EQ(s.entropy(0, 1, i, 0), clean.entropy(0, 1, i, 0)) << "another head";
  }
}

TEST_P(AnalyzeTest, TilesAreTheWeights) {
  for (const AttentionCase& c : AnalysisCases()) {
    SCOPED_TRACE(c.Describe());
    const auto [batch, heads, kv_heads, q_len, kv_len, dim, dim_v] = c.sizes;
    const Results all =
        RunAttention(c, {.lse = HasLse(c), .weights = true, .scores = ScoreStage::kBiased});
    const WeightsRange range = {q_len / 3, q_len, kv_len / 4, kv_len - kv_len / 5};
    for (const bool with_lse : {false, true}) {
      if (with_lse && !HasLse(c)) continue;
      Buffer<float> tile({batch, heads, q_len - q_len / 3, range.k_end - range.k_begin},
                         Layout::kPadded, kNan);
      WeightsTile(c.q.view(), c.k.view(), c.options(),
                  with_lse ? all.lse.view() : TensorView<const float>{}, range, tile.view());
      EXPECT_TRUE(tile.GapsAreUntouched());
      const double bound = 4 * kAnalysisMaxError;
      tile.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t j, float& weight) {
        EXPECT_NEAR(weight, all.weights(b, h, i + range.q_begin, j + range.k_begin), bound);
      });
    }
  }
}

TEST_P(AnalyzeTest, StorageTypesAreConvertedExactly) {
  AttentionCase c = MakeCase({.q_len = 40, .kv_len = 40, .head_dim = 7, .head_dim_v = 5});
  Buffer<BFloat16> q(c.q.shape(), Layout::kDense, {}), v(c.v.shape(), Layout::kDense, {});
  c.q.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
    q(b, h, i, d) = ToBFloat16(x);
    x = ToFloat(q(b, h, i, d));
  });
  c.v.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
    v(b, h, i, d) = ToBFloat16(x);
    x = ToFloat(v(b, h, i, d));
  });
  Buffer<float> entropy({1, 2, 40, 1}, Layout::kDense, kNan);
  Analyze(q.view(), StoredTensor(c.k.view()), c.options(), {}, {.entropy = entropy.view()});
  EXPECT_EQ(Bits(entropy), Bits(RunAnalyze(c, 1).entropy));
  Buffer<float> change({1, 2, 40, 40}, Layout::kDense, kNan), of_floats = change;
  Erasure(q.view(), StoredTensor(c.k.view()), v.view(), c.options(), 0, 40,
          {.change = change.view()});
  Erasure(c.q.view(), c.k.view(), c.v.view(), c.options(), 0, 40, {.change = of_floats.view()});
  EXPECT_EQ(Bits(change), Bits(of_floats));
}

TEST(Analyze, RefusesWhatDoesNotFit) {
  const AttentionCase c = MakeCase({.q_len = 3, .kv_len = 5});
  Buffer<float> rows({1, 2, 3, 1}, Layout::kDense, 0);
  Buffer<float> top({1, 2, 3, 6}, Layout::kDense, 0);
  const auto q = c.q.view();
  const auto k = c.k.view();
  EXPECT_THROW(Analyze(q, k, {}, {}, {.top_weights = top.view()}), Error) << "top_k > kv_len";
  EXPECT_THROW(Analyze(q, k, {}, {}, {.expected_distance = rows.view()}), Error) << "no positions";
  EXPECT_THROW(Analyze(q, k, {}, rows.view(), {.lse = rows.view()}), Error);
  EXPECT_THROW(Analyze(q, k, {}, {}, {.entropy = top.view()}), Error);
  AttentionOptions sums;
  sums.score = Score::kSquaredDistance;
  sums.normalize = Normalize::kKernelSum;
  sums.kernel = Kernel::kBoxcar;
  EXPECT_THROW(Analyze(q, k, sums, rows.view(), {.entropy = rows.view()}), Error) << "has no lse";
  EXPECT_THROW(WeightsTile(q, k, {}, {}, {2, 4, 0, 1}, top.view()), Error);
  EXPECT_THROW(WeightsTile(q, k, {}, {}, {0, 1, 3, 2}, top.view()), Error);
}

}  // namespace
}  // namespace heed::testing
