// User functions on weights: against the oracle, against built-in plugs that do the same, and what
// must not change whatever they return.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/analysis.h"
#include "heed/attention_free.h"
#include "heed/compose.h"
#include "heed/layers.h"
#include "normalizer_checks.h"
#include "request_builder.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class ProbMod : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(ProbMod);

constexpr Normalize kAll[] = {
    Normalize::kSoftmax,  Normalize::kSoftmax1,      Normalize::kSigmoid, Normalize::kRelu,
    Normalize::kAverage,  Normalize::kHard,          Normalize::kTopK,    Normalize::kSparsemax,
    Normalize::kEntmax15, Normalize::kStickBreaking, Normalize::kCope,    Normalize::kReluSquared};

AttentionCase Grouped(int64_t q_len = 37, int64_t kv_len = 600) {
  return MakeCase({.batch = 2,
                   .num_heads = 4,
                   .num_kv_heads = 2,
                   .q_len = q_len,
                   .kv_len = kv_len,
                   .head_dim = 24,
                   .head_dim_v = 17});
}

// What a function of weights and places could do, in expressions that add no error of their own.
constexpr const char* kExpressions[] = {
    "prob",
    "prob * prob",
    "max(prob - 0.01, 0)",
    "prob * (kvIndex % 2) - 0.5 * prob * (qIndex % 3 == 1)",
    "(h + 1) / 8 * prob + (b == 1 && kvIndex < 3 ? 0.125 : 0)",
    "0",
};

TEST_P(ProbMod, MatchesReferenceWithEveryNormaliser) {
  for (const Normalize normalize : kAll) {
    for (const std::string text : kExpressions) {
      AttentionCase c = NormalizerCase(normalize);
      c.prob_mod = text;
      SCOPED_TRACE(text);
      ExpectMatchesReference(c);
      if (HasFailure()) return;
    }
  }
}

TEST_P(ProbMod, MatchesReferenceForEveryShape) {
  for (const auto& [q_len, kv_len] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {1, 700}, {3, 2500}, {65, 63}, {130, 300}, {200, 1000}}) {
    AttentionCase c = Grouped(q_len, kv_len);
    c.scalars.query_offset = QueryOffset::End();
    c.scalars.causal = true;
    c.prob_mod = "prob * (1 + 0.5 * (kvIndex == position))";
    ExpectMatchesReference(c);
  }
}

TEST_P(ProbMod, CombinesWithEveryOtherRule) {
  Random random(8);
  AttentionCase c = Grouped();
  c.bias = MakeBias({2, 4, 37, 600}, random, 0.3);
  c.keep = MakeKeep({1, 4, 37, 600}, random, 0.7);
  c.key_lengths = {600, 123};
  c.sinks = {0.5f, -1.0f, 2.0f, 0.0f};
  c.alibi_slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
  c.scalars.softcap = 4;
  c.scalars.window = Window{300, 20};
  c.scalars.query_offset = QueryOffset::PerBatch({300, 90});
  c.scalars.dropout = {0.3, 11};
  c.AddTensor("relative_values", {9, 17}, random);
  c.prob_mod = "prob * 1.5";
  ExpectMatchesReference(c);
}

TEST_P(ProbMod, IdentityIsAttention) {
  for (const Normalize normalize : kAll) {
    AttentionCase c = NormalizerCase(normalize);
    const AttentionCase plain = c;
    c.prob_mod = "prob";
    ExpectResultsMatch(plain, RunAttention(c, {.lse = HasLse(c), .weights = true}),
                       RunOracle(plain));
  }
}

TEST_P(ProbMod, TwiceTheWeightIsTwiceTheOutputAndTheSameLse) {
  AttentionCase c = Grouped();
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::End();
  c.prob_mod = "prob";
  const Results once = RunAttention(c, {.lse = true, .weights = true});
  c.prob_mod = "prob * 2";
  const Results twice = RunAttention(c, {.lse = true, .weights = true});
  EXPECT_EQ(Bits(twice.lse), Bits(once.lse));
  for (const auto& [two, one] :
       {std::pair(&twice.output, &once.output), std::pair(&twice.weights, &once.weights)}) {
    std::vector<float> doubled = one->Elements();
    for (float& x : doubled) x *= 2;
    EXPECT_EQ(two->Elements(), doubled);
  }
}

TEST_P(ProbMod, SquaringReluIsReluSquared) {
  AttentionCase c = NormalizerCase(Normalize::kReluSquared);
  c.scalars.length_power = 0;
  c.scalars.scale = 0.1;
  const AttentionCase squared = c;
  c.scalars.normalize = Normalize::kRelu;
  c.prob_mod = "prob * prob";
  ExpectResultsMatch(squared, RunAttention(c, {.lse = false, .weights = true}), RunOracle(squared));
}

// The mask of dropout as a table: the same sums, and weights that know of it.
TEST_P(ProbMod, DropoutAsATableIsDropout) {
  AttentionCase c = MakeCase({.num_heads = 1, .num_kv_heads = 1, .q_len = 33, .kv_len = 300});
  Buffer<uint8_t> kept({1, 1, 33, 300}, Layout::kDense, 9);
  DropoutMask({0.5, 4}, kept.view());
  std::vector<float> table;
  kept.ForEach([&](int64_t, int64_t, int64_t, int64_t, uint8_t& x) { table.push_back(x); });
  Request request = c.request();
  request.inputs.push_back(
      {"captured.kept", {DType::kFloat32, table.data(), 2, {33, 300}, {300, 1}}});
  request.params.push_back({"prob_mod", std::string("prob * kept[qIndex, kvIndex] * 2")});
  const Values modified = RunByName(request);
  c.scalars.dropout = {0.5, 4};
  const Results dropped = RunAttention(c);
  const std::vector<float> output = dropped.output.Elements();
  for (size_t n = 0; n < output.size(); ++n) {
    ASSERT_NEAR(modified.at("output")[n], output[n], 8 * kAttentionMaxError) << n;
  }
}

TEST_P(ProbMod, ComesBeforeDropoutAndIsReturned) {
  AttentionCase c = Grouped();
  c.prob_mod = "prob + 0.01";
  const Results plain = RunAttention(c, {.weights = true});
  c.scalars.dropout = {0.5, 21};
  const Results dropped = RunAttention(c, {.weights = true});
  EXPECT_EQ(Bits(plain.weights), Bits(dropped.weights));
  EXPECT_NE(Bits(plain.output), Bits(dropped.output));
  ExpectMatchesReference(c);
}

TEST_P(ProbMod, WhatIsNotKeptStaysWithoutWeight) {
  for (const Normalize normalize : {Normalize::kSoftmax, Normalize::kSigmoid, Normalize::kTopK}) {
    AttentionCase c = NormalizerCase(normalize);
    c.scalars.causal = true;
    c.scalars.query_offset = QueryOffset::At(100);
    c.key_lengths = {300, 120};
    c.keep = Buffer<uint8_t>({1, 1, 1, 300}, Layout::kDense, 1);
    c.keep(0, 0, 0, 7) = 0;
    c.bias = Buffer<float>({1, 1, 1, 300}, Layout::kDense, 0.25f);
    c.bias(0, 0, 0, 9) = -kInf;
    c.prob_mod = "1 / 128";  // the weights of a row sum to about 1 again
    const Results r = RunAttention(c, {.lse = false, .weights = true});
    for (const int64_t j : {7, 9, 133, 299}) EXPECT_EQ(r.weights(1, 2, 32, j), 0) << j;
    EXPECT_EQ(r.weights(1, 2, 32, 120), 0);
    EXPECT_EQ(r.weights(0, 2, 31, 132), 0);
    ExpectMatchesReference(c);

    AttentionCase poisoned = c;
    for (const int64_t j : {7, 9, 250, 299}) {
      poisoned.k(1, 1, j, 2) = kNan;
      poisoned.v(1, 1, j, 2) = kInf;
    }
    const Results same = RunAttention(poisoned, {.lse = false, .weights = true});
    EXPECT_EQ(Bits(same.output), Bits(r.output));
    EXPECT_EQ(Bits(same.weights), Bits(r.weights));
  }
}

TEST_P(ProbMod, KeysThatTheNormaliserLeavesOutStayOut) {
  AttentionCase c = NormalizerCase(Normalize::kTopK);
  c.scalars.top_k = 5;
  c.prob_mod = "1";
  const Results r = RunAttention(c, {.lse = false, .weights = true});
  for (int64_t i = 0; i < 33; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < 300; ++j) sum += r.weights(0, 3, i, j);
    EXPECT_EQ(sum, 5);
  }
}

TEST_P(ProbMod, EmptyRowsStayZero) {
  AttentionCase c = Grouped();
  c.key_lengths = {0, 600};
  c.sinks = {1, 1, 1, 1};
  c.prob_mod = "prob / 2 + 1 / 1024";
  const Results r = RunAttention(c, {.lse = true, .weights = true});
  EXPECT_EQ(r.output(0, 1, 3, 4), 0);
  EXPECT_EQ(r.weights(0, 1, 3, 4), 0);
  EXPECT_EQ(r.lse(0, 1, 3, 0), -kInf);
  ExpectMatchesReference(c);
}

TEST_P(ProbMod, RowsOfAKernelSumWithoutMassStayZero) {
  for (const Kernel kernel : {Kernel::kGaussian, Kernel::kBoxcar, Kernel::kEpanechnikov}) {
    AttentionCase c = MakeCase({.q_len = 20, .kv_len = 70, .head_dim = 4, .head_dim_v = 9}, 5);
    c.scalars.score = Score::kSquaredDistance;
    c.scalars.normalize = Normalize::kKernelSum;
    c.scalars.kernel = kernel;
    for (int64_t d = 0; d < 4; ++d) c.q(0, 1, 3, d) = 1e3f;
    c.prob_mod = "prob * 0.5 + 0.01";
    const Results r = RunAttention(c, {.lse = false, .weights = true});
    if (kernel != Kernel::kGaussian) {
      EXPECT_EQ(r.output(0, 1, 3, 0), 0);
      EXPECT_EQ(r.weights(0, 1, 3, 0), 0);
    }
    ExpectMatchesReference(c);
  }
}

TEST_P(ProbMod, NanReachesTheRowsThatSeeIt) {
  AttentionCase c = Grouped();
  c.q(1, 2, 5, 0) = kNan;
  c.v(0, 0, 599, 3) = kNan;
  c.prob_mod = "prob * 0.5";
  ExpectMatchesReference(c);
  c = Grouped();
  c.prob_mod = "qIndex == 4 ? 0 / 0 : prob";
  const Results r = RunAttention(c);
  EXPECT_TRUE(std::isnan(r.output(1, 3, 4, 0)));
  EXPECT_TRUE(std::isfinite(r.output(1, 3, 5, 0)));
}

TEST_P(ProbMod, ThreadsChangeNoBit) {
  AttentionCase c = Grouped(200);
  c.prob_mod = "prob * sin(kvIndex)";
  const auto one = MakeThreadPool(1);
  const std::vector<uint32_t> expected = Bits(RunAttention(c, {}, one.get()).output);
  for (const int threads : {2, 3, 7}) {
    const auto pool = MakeThreadPool(threads);
    EXPECT_EQ(Bits(RunAttention(c, {}, pool.get()).output), expected) << threads;
  }
}

TEST_P(ProbMod, VisitorsSeeWhatIsReturned) {
  AttentionCase c = Grouped(37, 300);
  c.prob_mod = "prob * (kvIndex % 2)";
  const Results r = RunAttention(c, {.weights = true});
  Buffer<float> part({2, 4, 10, 100}, Layout::kDense, kNan);
  WeightsTile(StoredTensor(c.q.view()), StoredTensor(c.k.view()), c.options(), {},
              {5, 15, 200, 300}, part.view());
  part.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t j, float& x) {
    EXPECT_EQ(x, r.weights(b, h, i + 5, j + 200));
  });
}

TEST_P(ProbMod, CallablesSeeFinalWeightsWithTheirPlaces) {
  AttentionCase c = Grouped();
  c.scalars.query_offset = QueryOffset::At(7);
  AttentionCase same = c;
  same.prob_mod = "position > 20 ? prob * h : prob * b * kvIndex / 600";
  c.scalars.prob_mod = [](const PairTile& tile) {
    for (size_t r = 0; r < tile.num_rows; ++r) {
      for (size_t n = 0; n < tile.num_keys; ++n) {
        const auto key = static_cast<float>(tile.key_begin + static_cast<int64_t>(n));
        const bool late = tile.rows[r].position > 20;
        tile.values[r * tile.row_stride + n] *= late ? static_cast<float>(tile.rows[r].head)
                                                     : static_cast<float>(tile.batch) * key / 600;
      }
    }
  };
  ExpectResultsMatch(same, RunAttention(c, {.weights = true}), RunOracle(same));
}

template <class Body>
std::string MessageOf(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ProbModErrors, WhatCannotHaveItSaysSo) {
  AttentionCase c = MakeCase({.q_len = 3, .kv_len = 3, .head_dim = 4, .head_dim_v = 4});
  c.prob_mod = "prob * 2";
  const AttentionOptions options = c.options();
  Buffer<float> output({1, 2, 3, 4}, Layout::kDense, kNan);
  Buffer<float> tiles[3] = {Buffer<float>({1, 2, 3, 1}, Layout::kDense, kNan),
                            Buffer<float>({1, 2, 3, 1}, Layout::kDense, kNan),
                            Buffer<float>({1, 2, 3, 1}, Layout::kDense, kNan)};
  AttentionOutputs outputs;
  outputs.output = output.view();
  TalkingHeadsOptions talking;
  talking.attention = options;
  EXPECT_THAT(MessageOf([&] {
                TalkingHeadsAttention(c.q.view(), c.k.view(), c.v.view(), talking, outputs);
              }),
              HasSubstr("without prob_mod"));
  AttentionFreeOptions free;
  free.attention = options;
  EXPECT_THAT(
      MessageOf([&] { AttentionFree(c.q.view(), c.k.view(), c.v.view(), free, output.view()); }),
      HasSubstr("attention-free"));
  Buffer<float> change({1, 2, 3, 3}, Layout::kDense, kNan);
  EXPECT_THAT(MessageOf([&] {
                Erasure(c.q.view(), c.k.view(), c.v.view(), options, 0, 3, {change.view(), {}});
              }),
              HasSubstr("erasure with prob_mod"));
  MultiHeadOptions layer;
  layer.attention = options;
  layer.add_zero_attn = true;
  const Buffer<float> rows({1, 1, 3, 8}, Layout::kDense, 1), w({1, 2, 4, 8}, Layout::kDense, 1);
  Buffer<float> joined({1, 1, 3, 8}, Layout::kDense, kNan);
  MultiHeadWeights weights;
  weights.w_q = weights.w_k = weights.w_v = w.view();
  MultiHeadOutputs layer_outputs;
  layer_outputs.output = joined.view();
  EXPECT_THAT(MessageOf([&] {
                MultiHead(rows.view(), rows.view(), rows.view(), weights, layer, layer_outputs);
              }),
              HasSubstr("prob_mod with bias_k"));
  outputs.running_max = tiles[0].view();
  outputs.running_sum = tiles[1].view();
  outputs.rescale = tiles[2].view();
  EXPECT_THAT(MessageOf([&] { Attention(c.q.view(), c.k.view(), c.v.view(), options, outputs); }),
              HasSubstr("running_sum and rescale with prob_mod"));
  EXPECT_THAT(
      MessageOf([&] { CompileExpression("prob_mod", "score * 2", ExpressionValue::kProb); }),
      HasSubstr("`score` is unknown; known names are prob, b"));
}

}  // namespace
}  // namespace heed::testing
