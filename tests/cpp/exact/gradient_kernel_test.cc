// AttentionBackward() through kernel sums, against central differences of the float64 oracle.
// Random distances do not lie on the edge of a kernel, where the slope changes.
#include <utility>
#include <vector>

#include "attention_case.h"
#include "gmock/gmock.h"
#include "gradient_case.h"
#include "gtest/gtest.h"
#include "heed/gradient.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

class KernelGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(KernelGradient);

constexpr Kernel kKernels[] = {Kernel::kBoxcar, Kernel::kTriangular, Kernel::kEpanechnikov,
                               Kernel::kConstant};

AttentionCase MakeKernelCase(Kernel kernel, const Sizes& sizes, std::vector<float> width) {
  AttentionCase c = MakeCase(sizes);
  c.scalars.score = Score::kSquaredDistance;
  c.scalars.normalize = Normalize::kKernelSum;
  c.scalars.kernel = kernel;
  c.width = std::move(width);
  return c;
}

// Widths that show a query all keys, about half of them, and none but for a few.
TEST_P(KernelGradient, MatchesDifferencesOfReference) {
  for (const Kernel kernel : kKernels) {
    for (const float width : {8.0f, 2.4f, 1.2f}) {
      ExpectGradientsMatch(MakeKernelCase(kernel, kGradientSizes, {width}));
    }
    ExpectGradientsMatch(MakeKernelCase(kernel, kGradientSizes, {2, 4, 3}));
    ExpectGradientsMatch(MakeKernelCase(kernel, kGradientSizes, {}));
  }
}

TEST_P(KernelGradient, MatchesForMasksAndDropout) {
  Random random(5);
  for (const Kernel kernel : kKernels) {
    AttentionCase c = MakeKernelCase(kernel, kGradientSizes, {8});
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::At(-2);  // two empty rows
    ExpectGradientsMatch(c);
    c.scalars.window = Window{3, 1};
    c.scalars.query_offset = QueryOffset::At(1);
    c.scalars.dropout = {.p = 0.3, .seed = 9};
    c.key_lengths = {6, 4};
    c.keep = MakeKeep({1, 4, 5, 7}, random, 0.6);
    ExpectGradientsMatch(c);
  }
}

// Several tiles of keys, row groups and parts; runs of panels where keys are kept in blocks. Of so
// many pairs a step of the difference takes some across the edge, where boxcar jumps.
TEST_P(KernelGradient, MatchesAlongRandomDirectionsForLongerSequences) {
  Random random(4);
  for (const Kernel kernel : {Kernel::kTriangular, Kernel::kEpanechnikov}) {
    AttentionCase c = MakeKernelCase(kernel,
                                     {.num_heads = 2,
                                      .num_kv_heads = 1,
                                      .q_len = 130,
                                      .kv_len = 600,
                                      .head_dim = 8,
                                      .head_dim_v = 9},
                                     {20});
    ExpectDirectionsMatch(c, 1);
    c.lists.q_block = c.lists.kv_block = 32;
    c.lists.block_keep = MakeKeep({1, 1, 5, 19}, random, 0.5);
    ExpectDirectionsMatch(c, 1);
  }
}

TEST_P(KernelGradient, ThreadsChangeNoBit) {
  for (const Kernel kernel : kKernels) {
    ExpectThreadsChangeNoBit(MakeKernelCase(kernel,
                                            {.num_heads = 2,
                                             .num_kv_heads = 1,
                                             .q_len = 600,
                                             .kv_len = 300,
                                             .head_dim = 8,
                                             .head_dim_v = 8},
                                            {4}));
  }
}

TEST_P(KernelGradient, RowsWithoutKeysOrWithoutMassHaveZeroGradients) {
  for (const Kernel kernel : kKernels) {
    ExpectEmptyRowsGiveZeros(MakeKernelCase(kernel, kGradientSizes, {4}));
    if (kernel == Kernel::kConstant) continue;
    AttentionCase c = MakeKernelCase(kernel, kGradientSizes, {0.001f});
    for (const auto& [name, gradient] : RunBackward(c, MakeCotangents(c))) {
      EXPECT_THAT(gradient, ::testing::Each(0.0)) << name;
    }
  }
}

TEST_P(KernelGradient, MaskedNonFiniteValuesDoNotMatter) {
  for (const Kernel kernel : kKernels) {
    ExpectMaskedNanDoesNotMatter(MakeKernelCase(kernel, kGradientSizes, {4}));
  }
}

TEST_P(KernelGradient, VisibleNonFiniteValuesReachWhatSeesThemAndNothingElse) {
  for (const Kernel kernel : {Kernel::kTriangular, Kernel::kEpanechnikov}) {
    ExpectNanReachesWhatSeesIt(MakeKernelCase(kernel, kFourTokens, {20}));
  }
}

// One dimension, three keys: at the query, on the edge, and within.
TEST_P(KernelGradient, EdgesAndTipsHaveTheSlopeZero) {
  for (const Kernel kernel : {Kernel::kTriangular, Kernel::kEpanechnikov}) {
    AttentionCase c = MakeKernelCase(kernel,
                                     {.num_heads = 1,
                                      .num_kv_heads = 1,
                                      .q_len = 1,
                                      .kv_len = 3,
                                      .head_dim = 1,
                                      .head_dim_v = 1},
                                     {});
    c.q(0, 0, 0, 0) = 1;
    c.k(0, 0, 0, 0) = 1;
    c.k(0, 0, 1, 0) = 2;
    c.k(0, 0, 2, 0) = 0.5f;
    const Values gradients = RunBackward(c, MakeCotangents(c));
    EXPECT_EQ(gradients.at("k")[0], 0);
    EXPECT_EQ(gradients.at("k")[1], 0);
    EXPECT_NE(gradients.at("k")[2], 0);
    EXPECT_EQ(gradients.at("v")[1], 0);
  }
}

TEST(KernelGradientMemory, DoesNotGrowWithThePairs) {
  AttentionOptions options;
  options.score = Score::kSquaredDistance;
  options.normalize = Normalize::kKernelSum;
  options.kernel = Kernel::kEpanechnikov;
  const int64_t bytes = BackwardScratch(16384, options);
  EXPECT_LT(bytes, 16384 * int64_t{16384} * 4 / 10);
  EXPECT_LT(BackwardScratch(32768, options), 2 * bytes);
}

}  // namespace
}  // namespace heed::testing
