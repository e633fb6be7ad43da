// AttentionBackward() through contextual positions, against central differences of the float64
// oracle.
#include <limits>
#include <vector>

#include "attention_case.h"
#include "gradient_case.h"
#include "gtest/gtest.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class CopeGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(CopeGradient);

AttentionCase MakeCope(const Sizes& sizes, int64_t heads, int64_t positions) {
  AttentionCase c = MakeCase(sizes);
  Random random(3);
  c.scalars.normalize = Normalize::kCope;
  AddCopeTable(c, heads, positions, random);
  return c;
}

// Positions between the entries, and beyond the last one.
TEST_P(CopeGradient, MatchesDifferencesOfReference) {
  for (const int64_t heads : {1, 4}) {
    for (const int64_t positions : {1, 3, 9}) {
      ExpectGradientsMatch(MakeCope(kGradientSizes, heads, positions));
    }
  }
}

TEST_P(CopeGradient, MatchesWithOtherPlugs) {
  Random random(6);
  AttentionCase c = MakeCope(kGradientSizes, 4, 4);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(-1);  // an empty row
  c.sinks = {0.3f, -1.0f, 2.0f, -kInf};
  ExpectGradientsMatch(c);
  c.scalars.softcap = 2;
  c.scalars.dropout = {.p = 0.3, .seed = 3};
  c.bias = MakeBias({2, 1, 5, 7}, random, 0.2);
  c.alibi_slopes = {0.5f, 0.25f, 0.125f, -0.3f};
  ExpectGradientsMatch(c);
  c.scalars.causal = false;
  c.scalars.window = Window{2, 1};
  c.key_lengths = {6, 3};
  c.keep = MakeKeep({1, 4, 5, 7}, random, 0.7);
  ExpectGradientsMatch(c);
  c = MakeCope(kGradientSizes, 1, 4);
  c.scalars.score = Score::kCosine;
  ExpectGradientsMatch(c);
}

TEST_P(CopeGradient, MatchesForLargeLogits) {
  AttentionCase c = MakeCope(kGradientSizes, 1, 5);
  c.scalars.scale = 20;
  ExpectGradientsMatch(c, 500);
}

// Several tiles of keys, row groups and parts; runs of panels where keys are kept in blocks. Of so
// many positions a step of the difference would take some past an entry, where the slope changes:
// the table is a line, longer than the sequence.
TEST_P(CopeGradient, MatchesAlongRandomDirectionsForLongerSequences) {
  Random random(4);
  AttentionCase c = MakeCope({.num_heads = 2,
                              .num_kv_heads = 1,
                              .q_len = 600,
                              .kv_len = 330,
                              .head_dim = 8,
                              .head_dim_v = 9},
                             2, 340);
  c.tensors["cope_table"].buffer.ForEach([](int64_t, int64_t h, int64_t p, int64_t d, float& x) {
    x = 0.1f * static_cast<float>(d - 4) + 0.002f * static_cast<float>(p * (h + 1));
  });
  ExpectDirectionsMatch(c, 1);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(-200);
  c.lists.q_block = c.lists.kv_block = 32;
  c.lists.block_keep = MakeKeep({1, 1, 19, 11}, random, 0.5);
  ExpectDirectionsMatch(c, 1);
}

TEST_P(CopeGradient, ThreadsChangeNoBit) {
  ExpectThreadsChangeNoBit(MakeCope({.num_heads = 2,
                                     .num_kv_heads = 1,
                                     .q_len = 600,
                                     .kv_len = 300,
                                     .head_dim = 8,
                                     .head_dim_v = 8},
                                    1, 32));
}

TEST_P(CopeGradient, EmptyRowsHaveZeroGradients) {
  ExpectEmptyRowsGiveZeros(MakeCope(kGradientSizes, 4, 3));
}

TEST_P(CopeGradient, MaskedNonFiniteValuesDoNotMatter) {
  AttentionCase c = MakeCope(kGradientSizes, 4, 3);
  ExpectMaskedNanDoesNotMatter(c);
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(1);
  ExpectMaskedNanDoesNotMatter(c);
}

TEST_P(CopeGradient, VisibleNonFiniteValuesReachWhatSeesThemAndNothingElse) {
  ExpectNanReachesWhatSeesIt(MakeCope(kFourTokens, 1, 3));
}

TEST(CopeGradientMemory, DoesNotGrowWithThePairs) {
  std::vector<float> table(64 * 64), sums = table;
  AttentionOptions options;
  options.normalize = Normalize::kCope;
  options.cope_table = Contiguous(table.data(), 1, 1, 64, 64);
  AttentionGradients gradients;
  gradients.d_cope_table = Contiguous(sums.data(), 1, 1, 64, 64);
  const int64_t bytes = BackwardScratch(16384, options, gradients);
  EXPECT_LT(bytes, 16384 * int64_t{16384} * 4 / 10);
  EXPECT_LT(BackwardScratch(32768, options, gradients), 2 * bytes);
}

}  // namespace
}  // namespace heed::testing
