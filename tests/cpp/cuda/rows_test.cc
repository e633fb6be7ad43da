// What the row kernel does: every score, every normaliser, relative terms, weights and scores, in
// any combination, against the oracle.
#include <array>
#include <string>

#include "device_case.h"
#include "gtest/gtest.h"
#include "random_case.h"

namespace heed::testing {
namespace {

constexpr uint64_t kCases = 24;

class DeviceRowsOfScores : public OnDevice {};
HEED_IN_EVERY_TYPE(DeviceRowsOfScores);

// A random problem that the device path takes; the row kernel runs it, as weights are asked for.
AttentionCase CaseForDevice(uint64_t seed) {
  AttentionCase c = RandomCase(seed);
  c.prob_mod.clear();
  return c;
}

void ExpectRowsMatch(const AttentionCase& c, DType dtype) {
  ExpectDeviceMatches(c, dtype, {.processors = 2, .pairs = true});
}

TEST_P(DeviceRowsOfScores, TakeEveryKeepRuleAndModifier) {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ExpectRowsMatch(CaseForDevice(seed), GetParam());
    if (HasFailure()) return;
  }
}

TEST_P(DeviceRowsOfScores, TakeEveryScore) {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed + 5000);
    AttentionCase c = CaseForDevice(seed + 7000);
    AddScore(c, random);
    ExpectRowsMatch(c, GetParam());
    if (HasFailure()) return;
  }
}

TEST_P(DeviceRowsOfScores, TakeEveryDistance) {
  for (uint64_t seed = 1; seed <= kCases; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed + 9000);
    AttentionCase c = CaseForDevice(seed + 11000);
    const bool dot = random.Chance(0.7);
    if (!dot) AddScore(c, random);
    FixOffset(c);
    AddDistances(c, random, dot);
    ExpectRowsMatch(c, GetParam());
    if (HasFailure()) return;
  }
}

TEST_P(DeviceRowsOfScores, TakeEveryNormalizer) {
  constexpr std::array<Normalize, 11> kNormalizers = {
      Normalize::kSoftmax1, Normalize::kSigmoid,       Normalize::kRelu, Normalize::kReluSquared,
      Normalize::kAverage,  Normalize::kHard,          Normalize::kTopK, Normalize::kSparsemax,
      Normalize::kEntmax15, Normalize::kStickBreaking, Normalize::kCope};
  for (uint64_t seed = 1; seed <= 3 * kCases; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    AttentionCase c = CaseForDevice(seed + 5000);
    Random random(seed);
    AddNormalizer(c, kNormalizers[seed % kNormalizers.size()], random);
    ExpectRowsMatch(c, GetParam());
    if (HasFailure()) return;
  }
}

TEST_P(DeviceRowsOfScores, TakeEveryKernel) {
  for (const Kernel kernel : {Kernel::kGaussian, Kernel::kBoxcar, Kernel::kTriangular,
                              Kernel::kEpanechnikov, Kernel::kConstant}) {
    AttentionCase c = MakeCase({.q_len = 9, .kv_len = 150, .head_dim = 3, .head_dim_v = 5});
    c.scalars.score = Score::kSquaredDistance;
    c.scalars.normalize = Normalize::kKernelSum;
    c.scalars.kernel = kernel;
    c.width = {8};
    ExpectRowsMatch(c, GetParam());
  }
}

TEST_P(DeviceRowsOfScores, TakeWideHeadsAndLongRows) {
  ExpectRowsMatch(MakeCase({.q_len = 2, .kv_len = 40, .head_dim = 300, .head_dim_v = 515}),
                  GetParam());
  AttentionCase c = MakeCase({.q_len = 1, .kv_len = 3000, .head_dim = 8, .head_dim_v = 8});
  c.scalars.normalize = Normalize::kStickBreaking;
  ExpectRowsMatch(c, GetParam());
}

TEST_P(DeviceRowsOfScores, HiddenNaNReachesNoRow) {
  AttentionCase c = MakeCase({.q_len = 4, .kv_len = 70, .head_dim = 8, .head_dim_v = 8});
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(60);
  c.scalars.normalize = Normalize::kSparsemax;
  for (int64_t d = 0; d < 8; ++d) c.k(0, 0, 66, d) = c.v(0, 1, 62, d) = std::nanf("");
  ExpectRowsMatch(c, GetParam());
}

// Scores before the biases show every pair.
TEST_P(DeviceRowsOfScores, EarlyScoresShowHiddenKeys) {
  AttentionCase c = MakeCase({.q_len = 5, .kv_len = 9, .head_dim = 8, .head_dim_v = 8});
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(0);
  c.scalars.softcap = 2.0;
  const Results expected = RunAttention(c, {.scores = ScoreStage::kCapped});
  DeviceCall call;
  Buffer<float> output({1, 2, 5, 8}, Layout::kDense, 0), scores({1, 2, 5, 9}, Layout::kDense, 0);
  call.q = StoredTensor(c.q.view()), call.k = StoredTensor(c.k.view());
  call.v = StoredTensor(c.v.view());
  call.options = c.options();
  call.outputs.output = output.view();
  call.outputs.scores = scores.view();
  call.outputs.score_stage = ScoreStage::kCapped;
  EXPECT_EQ(RunOnDevice(call), "");
  for (size_t n = 0; n < scores.Elements().size(); ++n) {
    EXPECT_NEAR(scores.Elements()[n], expected.scores.Elements()[n], 1e-6);
  }
}

}  // namespace
}  // namespace heed::testing
