// AttentionBackward() through relative tables, against central differences of the float64 oracle.
#include <utility>
#include <vector>

#include "attention_case.h"
#include "gmock/gmock.h"
#include "gradient_case.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class RelativeGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(RelativeGradient);

constexpr Sizes kLong = {.batch = 1,
                         .num_heads = 2,
                         .num_kv_heads = 1,
                         .q_len = 600,
                         .kv_len = 300,
                         .head_dim = 9,
                         .head_dim_v = 17};

AttentionCase MakeRelative(const Sizes& sizes) {
  AttentionCase c = MakeCase(sizes);
  c.scalars.query_offset = QueryOffset::At(1);
  return c;
}

// Tables of keys and values (Shaw), one or one a head.
AttentionCase MakeShaw(const Sizes& sizes, int64_t heads, int64_t rows) {
  AttentionCase c = MakeRelative(sizes);
  Random random(3);
  c.AddTensor("relative_keys", {heads, rows, sizes.head_dim}, random);
  c.AddTensor("relative_values", {heads, rows, sizes.head_dim_v}, random);
  return c;
}

// Keys by distance and two biases (Transformer-XL).
AttentionCase MakeBiased(const Sizes& sizes, int64_t heads, int64_t rows) {
  AttentionCase c = MakeRelative(sizes);
  Random random(4);
  c.AddTensor("relative_keys", {heads, rows, sizes.head_dim}, random);
  c.AddTensor("content_bias", {sizes.num_heads, sizes.head_dim}, random);
  c.AddTensor("position_bias", {sizes.num_heads, sizes.head_dim}, random);
  return c;
}

// Tables for both sides, in log buckets (DeBERTa).
AttentionCase MakeDisentangled(const Sizes& sizes, int64_t heads, int64_t rows) {
  AttentionCase c = MakeRelative(sizes);
  Random random(5);
  c.AddTensor("relative_keys", {heads, rows, sizes.head_dim}, random);
  c.AddTensor("relative_queries", {heads, rows, sizes.head_dim}, random);
  c.scalars.relative_rows = RelativeRows::kLogSpan;
  c.scalars.relative_max_distance = 60;
  return c;
}

TEST_P(RelativeGradient, MatchesDifferencesOfReference) {
  for (const int64_t heads : {1, 4}) {
    for (const int64_t rows : {1, 5, 21}) {
      ExpectGradientsMatch(MakeShaw(kGradientSizes, heads, rows));
      ExpectGradientsMatch(MakeBiased(kGradientSizes, heads, rows));
    }
    ExpectGradientsMatch(MakeDisentangled(kGradientSizes, heads, 8));
    AttentionCase c = MakeDisentangled(kGradientSizes, heads, 6);
    c.scalars.relative_rows = RelativeRows::kSpan;
    ExpectGradientsMatch(c);
  }
}

TEST_P(RelativeGradient, EachTableMayBeLeftOut) {
  for (const char* name : {"relative_keys", "relative_values"}) {
    AttentionCase c = MakeShaw(kGradientSizes, 4, 5);
    c.tensors.erase(name);
    ExpectGradientsMatch(c);
  }
  for (const char* name : {"content_bias", "position_bias"}) {
    AttentionCase c = MakeBiased(kGradientSizes, 1, 5);
    c.tensors.erase(name);
    ExpectGradientsMatch(c);
  }
  AttentionCase c = MakeDisentangled(kGradientSizes, 1, 8);
  c.tensors.erase("relative_keys");
  ExpectGradientsMatch(c);
}

TEST_P(RelativeGradient, MatchesWithOtherPlugs) {
  Random random(6);
  for (AttentionCase c : {MakeShaw(kGradientSizes, 4, 5), MakeBiased(kGradientSizes, 1, 9)}) {
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::At(-1);  // an empty row
    c.scalars.softcap = 2;
    c.scalars.dropout = {.p = 0.3, .seed = 3};
    c.bias = MakeBias({2, 1, 5, 7}, random, 0.2);
    c.sinks = {0.3f, -1.0f, 2.0f, 0.1f};
    ExpectGradientsMatch(c);
    c.scalars.causal = false;
    c.scalars.window = Window{2, 1};
    c.key_lengths = {6, 3};
    ExpectGradientsMatch(c);
  }
  // Values take any score and any normaliser.
  AttentionCase c = MakeShaw(kGradientSizes, 1, 5);
  c.tensors.erase("relative_keys");
  c.scalars.score = Score::kCosine;
  c.scalars.normalize = Normalize::kSparsemax;
  ExpectGradientsMatch(c);
  c.scalars.normalize = Normalize::kSigmoid;
  ExpectGradientsMatch(c);
}

TEST_P(RelativeGradient, MatchesForLargeLogits) {
  AttentionCase c = MakeDisentangled(kGradientSizes, 1, 8);
  c.scalars.scale = 20;
  ExpectGradientsMatch(c, 500);
}

// Several tiles and parts, and distances beyond the tables.
TEST_P(RelativeGradient, MatchesAlongRandomDirectionsForLongerSequences) {
  for (const int64_t rows : {33, 641}) {
    for (AttentionCase c : {MakeShaw(kLong, 2, rows), MakeBiased(kLong, 1, rows)}) {
      c.scalars.query_offset = QueryOffset::At(-200);
      ExpectDirectionsMatch(c, 1);
    }
  }
  AttentionCase c = MakeDisentangled(kLong, 1, 64);
  ExpectDirectionsMatch(c, 1);
  Random random(7);
  c.lists.q_block = c.lists.kv_block = 32;
  c.lists.block_keep = MakeKeep({1, 1, 19, 10}, random, 0.5);
  ExpectDirectionsMatch(c, 1);
}

TEST_P(RelativeGradient, ThreadsChangeNoBit) {
  ExpectThreadsChangeNoBit(MakeShaw(kLong, 2, 33));
  ExpectThreadsChangeNoBit(MakeDisentangled(kLong, 1, 32));
}

TEST_P(RelativeGradient, EmptyRowsHaveZeroGradients) {
  ExpectEmptyRowsGiveZeros(MakeShaw(kGradientSizes, 4, 5));
  ExpectEmptyRowsGiveZeros(MakeDisentangled(kGradientSizes, 1, 8));
}

TEST_P(RelativeGradient, MaskedNonFiniteValuesDoNotMatter) {
  ExpectMaskedNanDoesNotMatter(MakeShaw(kGradientSizes, 4, 5));
  ExpectMaskedNanDoesNotMatter(MakeDisentangled(kGradientSizes, 1, 8));
}

// Averages have no scores: what only scores read learns nothing.
TEST_P(RelativeGradient, AveragesPassNothingToTablesOfScores) {
  for (AttentionCase c : {MakeShaw(kGradientSizes, 4, 5), MakeBiased(kGradientSizes, 4, 5)}) {
    c.scalars.normalize = Normalize::kAverage;
    const Values gradients = RunBackward(c, MakeCotangents(c));
    for (const auto& [name, gradient] : gradients) {
      if (name == "v" || name == "relative_values") continue;
      EXPECT_THAT(gradient, ::testing::Each(0.0)) << name;
    }
    EXPECT_TRUE(gradients.contains("relative_keys"));
  }
}

TEST(RelativeGradientMemory, DoesNotGrowWithThePairs) {
  std::vector<float> table(33 * 64), sums[3];
  const TensorView<const float> rows = Contiguous(std::as_const(table).data(), 1, 1, 33, 64);
  AttentionOptions options;
  options.relative_keys = options.relative_queries = options.relative_values = rows;
  AttentionGradients gradients;
  for (std::vector<float>& to : sums) to = table;
  gradients.d_relative_keys = Contiguous(sums[0].data(), 1, 1, 33, 64);
  gradients.d_relative_queries = Contiguous(sums[1].data(), 1, 1, 33, 64);
  gradients.d_relative_values = Contiguous(sums[2].data(), 1, 1, 33, 64);
  const int64_t bytes = BackwardScratch(16384, options, gradients);
  EXPECT_LT(bytes, 16384 * int64_t{16384} * 4 / 10);
  EXPECT_LT(BackwardScratch(32768, options, gradients), 2 * bytes);
}

}  // namespace
}  // namespace heed::testing
