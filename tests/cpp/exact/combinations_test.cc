// Any combination of options works together: seeded random problems against the oracle.
#include <array>
#include <cmath>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gtest/gtest.h"
#include "random_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr int kCases = 300;

class AttentionCombinations : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(AttentionCombinations);

TEST_P(AttentionCombinations, DistancesTakeTheSameOptions) {
  for (uint64_t seed = 1; seed <= kCases / 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed + 9000);
    AttentionCase c = RandomCase(seed + 11000);
    const bool dot = random.Chance(0.7);
    if (!dot) AddScore(c, random);
    FixOffset(c);
    AddDistances(c, random, dot);
    ExpectMatchesReference(c);
    if (HasFailure()) return;
  }
}

TEST_P(AttentionCombinations, MatchReference) {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExpectMatchesReference(RandomCase(seed));
    if (HasFailure()) return;  // one broken case says enough
  }
}

TEST_P(AttentionCombinations, EveryScoreTakesTheSameOptions) {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed + 5000);
    AttentionCase c = RandomCase(seed + 7000);
    AddScore(c, random);
    ExpectMatchesReference(c);
    if (HasFailure()) return;
  }
}

// Everything but softmax and the kernel sums, which have tests of their own.
constexpr std::array<Normalize, 11> kNormalizers = {
    Normalize::kSoftmax1, Normalize::kSigmoid,       Normalize::kRelu, Normalize::kReluSquared,
    Normalize::kAverage,  Normalize::kHard,          Normalize::kTopK, Normalize::kSparsemax,
    Normalize::kEntmax15, Normalize::kStickBreaking, Normalize::kCope};

TEST_P(AttentionCombinations, EveryNormalizerGoesWithEveryOption) {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    AttentionCase c = RandomCase(seed + 5000);
    Random random(seed);
    AddNormalizer(c, kNormalizers[seed % kNormalizers.size()], random);
    const bool chooses =
        c.scalars.normalize == Normalize::kHard || c.scalars.normalize == Normalize::kTopK;
    if (random.Chance(0.3) && !chooses) AddScore(c, random);
    if (random.Chance(0.4)) c.scalars.dropout = {0.9 * random.Uniform(), random.Next()};
    ExpectMatchesReference(c);
    if (HasFailure()) return;
  }
}

TEST_P(AttentionCombinations, KernelRegressionKeepsTheSameRules) {
  constexpr std::array<Kernel, 3> kKernels = {Kernel::kGaussian, Kernel::kTriangular,
                                              Kernel::kEpanechnikov};
  for (uint64_t seed = 1; seed <= kCases / 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed + 1000);
    AttentionCase c = MakeCase(RandomSizes(random), seed, RandomLayout(random));
    AddKeepRules(c, random);
    c.scalars.score = Score::kSquaredDistance;
    c.scalars.normalize = Normalize::kKernelSum;
    c.scalars.kernel = kKernels[seed % kKernels.size()];
    // Wide enough that most keys have mass: |q - k|^2 is about 2 head_dim.
    c.width = {static_cast<float>(3 * std::sqrt(2.0 * static_cast<double>(c.sizes.head_dim)))};
    ExpectMatchesReference(c);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace heed::testing
