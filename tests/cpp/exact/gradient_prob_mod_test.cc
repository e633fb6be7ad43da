// AttentionBackward() through prob_mod, around every normaliser, against central differences of the
// float64 oracle.
#include <cmath>
#include <limits>
#include <string>

#include "attention_case.h"
#include "gmock/gmock.h"
#include "gradient_case.h"
#include "gtest/gtest.h"
#include "heed/gradient.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class ProbModGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(ProbModGradient);

constexpr Normalize kNormalisers[] = {
    Normalize::kSoftmax,     Normalize::kSoftmax1, Normalize::kSigmoid,       Normalize::kRelu,
    Normalize::kReluSquared, Normalize::kAverage,  Normalize::kHard,          Normalize::kTopK,
    Normalize::kSparsemax,   Normalize::kEntmax15, Normalize::kStickBreaking, Normalize::kCope};

constexpr const char* kCurved = "2 * prob * prob - 0.3 * prob * (kvIndex % 3) - 0.1 * h";

AttentionCase MakeProbCase(Normalize normalize, const Sizes& sizes,
                           const std::string& prob_mod = kCurved) {
  AttentionCase c = MakeCase(sizes);
  c.scalars.normalize = normalize;
  if (normalize == Normalize::kTopK) c.scalars.top_k = 3;
  c.prob_mod = prob_mod;
  Random random(3);
  if (normalize == Normalize::kCope) AddCopeTable(c, 1, 4, random);
  return c;
}

TEST_P(ProbModGradient, MatchesDifferencesOfReference) {
  for (const Normalize normalize : kNormalisers) {
    for (const char* prob_mod : {"prob", kCurved, "0.25", "max(prob - 0.1, 0) / (1 + prob)"}) {
      ExpectGradientsMatch(MakeProbCase(normalize, kGradientSizes, prob_mod));
    }
  }
}

TEST_P(ProbModGradient, MatchesForKernelSums) {
  for (const Kernel kernel : {Kernel::kGaussian, Kernel::kTriangular, Kernel::kBoxcar}) {
    AttentionCase c = MakeProbCase(Normalize::kKernelSum, kGradientSizes);
    c.scalars.score = Score::kSquaredDistance;
    c.scalars.kernel = kernel;
    c.width = {8};
    ExpectGradientsMatch(c);
  }
}

TEST_P(ProbModGradient, MatchesWithOtherPlugs) {
  Random random(6);
  for (const Normalize normalize : kNormalisers) {
    AttentionCase c = MakeProbCase(normalize, kGradientSizes);
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::At(-1);  // an empty row
    c.scalars.dropout = {.p = 0.3, .seed = 3};
    c.bias = MakeBias({2, 1, 5, 7}, random, 0.2);
    if (HasLse(c) && normalize != Normalize::kSoftmax1) c.sinks = {0.3f, -1.0f, 2.0f, -kInf};
    ExpectGradientsMatch(c);
    c.scalars.softcap = 2;
    c.score_mod = "score + 0.2 * sin(score)";
    c.key_lengths = {6, 3};
    c.keep = MakeKeep({1, 4, 5, 7}, random, 0.7);
    c.AddTensor("relative_values", {5, 5}, random);
    c.scalars.query_offset = QueryOffset::At(2);
    ExpectGradientsMatch(c);
  }
}

// Several tiles of keys, row groups and parts; runs of panels where keys are kept in blocks.
TEST_P(ProbModGradient, MatchesAlongRandomDirectionsForLongerSequences) {
  Random random(4);
  for (const Normalize normalize : {Normalize::kSoftmax, Normalize::kEntmax15}) {
    AttentionCase c = MakeProbCase(normalize, {.num_heads = 2,
                                               .num_kv_heads = 1,
                                               .q_len = 130,
                                               .kv_len = 600,
                                               .head_dim = 8,
                                               .head_dim_v = 9});
    ExpectDirectionsMatch(c, 1);
    c.lists.q_block = c.lists.kv_block = 32;
    c.lists.block_keep = MakeKeep({1, 1, 5, 19}, random, 0.5);
    ExpectDirectionsMatch(c, 1);
  }
}

TEST_P(ProbModGradient, ThreadsChangeNoBit) {
  for (const Normalize normalize : {Normalize::kSoftmax, Normalize::kCope}) {
    ExpectThreadsChangeNoBit(MakeProbCase(normalize, {.num_heads = 2,
                                                      .num_kv_heads = 1,
                                                      .q_len = 600,
                                                      .kv_len = 300,
                                                      .head_dim = 8,
                                                      .head_dim_v = 8}));
  }
}

TEST_P(ProbModGradient, EmptyRowsHaveZeroGradients) {
  for (const Normalize normalize : kNormalisers) {
    ExpectEmptyRowsGiveZeros(MakeProbCase(normalize, kGradientSizes, "prob * prob + 1"));
  }
}

TEST_P(ProbModGradient, MaskedNonFiniteValuesDoNotMatter) {
  for (const Normalize normalize : kNormalisers) {
    ExpectMaskedNanDoesNotMatter(MakeProbCase(normalize, kGradientSizes, "prob * prob + 1"));
  }
}

// Where a key is hidden, the derivative may be anything: of 1 / prob it is infinite there.
TEST_P(ProbModGradient, SlopesOfHiddenKeysDoNotMatter) {
  AttentionCase c = MakeProbCase(Normalize::kSoftmax, kGradientSizes, "0.01 / prob");
  c.key_lengths = {3, 2};
  ExpectGradientsMatch(c);
}

TEST_P(ProbModGradient, VisibleNonFiniteValuesReachWhatSeesThemAndNothingElse) {
  for (const Normalize normalize : kNormalisers) {
    const bool flat = normalize == Normalize::kHard || normalize == Normalize::kAverage;
    if (flat) continue;  // pass nothing to scores
    AttentionCase c = MakeProbCase(normalize, kFourTokens, "prob * prob");
    c.scalars.scale = 0.01;  // all keys in view have a weight
    c.scalars.top_k = 4;
    if (normalize == Normalize::kRelu || normalize == Normalize::kReluSquared) {
      c.score_mod = "score + 1";
    }
    ExpectNanReachesWhatSeesIt(c);
  }
}

TEST(ProbModGradientMemory, DoesNotGrowWithThePairs) {
  AttentionOptions options;
  options.prob_mod = [](const PairTile&) {};
  AttentionGradients gradients;
  gradients.prob_mod_slope = options.prob_mod;
  const int64_t bytes = BackwardScratch(16384, options, gradients);
  EXPECT_LT(bytes, 16384 * int64_t{16384} * 4 / 10);
  EXPECT_LT(BackwardScratch(32768, options, gradients), 2 * bytes);
}

}  // namespace
}  // namespace heed::testing
