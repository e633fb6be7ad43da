// Nystrom attention: against the oracle, its limits, and numbers from its definition.
#include <algorithm>
#include <cmath>
#include <limits>

#include "composed_case.h"
#include "gtest/gtest.h"
#include "heed/cost.h"
#include "heed/low_rank.h"
#include "low_rank_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Nystrom : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Nystrom);

// Tokens that drift slowly, so that segments have something in common and landmarks differ.
Tokens Drifting(const LowRankSizes& sizes, uint64_t seed = 1) {
  Tokens tokens(sizes, seed);
  const auto drift = [&](std::vector<float>& rows, uint64_t from) {
    const std::vector<float> directions = Normals(6 * sizes.head_dim, from, 1.2);
    for (size_t n = 0; n < rows.size(); ++n) {
      const size_t dim = static_cast<size_t>(sizes.head_dim);
      const size_t token = n / dim % static_cast<size_t>(sizes.kv_len);
      const size_t part = 6 * token / static_cast<size_t>(sizes.kv_len);
      rows[n] = 0.3f * rows[n] + directions[part * dim + n % dim];
    }
  };
  drift(tokens.q, 50);
  drift(tokens.k, 50);
  return tokens;
}

constexpr LowRankSizes kSame = {.q_len = 70};

TEST_P(Nystrom, MatchesReference) {
  for (const LowRankSizes& s : ManyLowRankSizes(true)) {
    for (const int64_t landmarks : {int64_t{1}, std::min<int64_t>(6, s.kv_len)}) {
      RequestBuilder builder = Drifting(s).Request("nystrom");
      builder.Param("num_landmarks", static_cast<double>(landmarks))
          .Param("return_weights", true)
          .Param("return_residual", true);
      // Six well separated landmarks: row sums of |pinv| stay below 2.
      ExpectMatchesLowRankOracle(builder.request(), 4 * 5, "kv_len " + std::to_string(s.kv_len));
    }
  }
}

TEST_P(Nystrom, ConvolutionMatchesReference) {
  for (const int64_t heads : {1, 4}) {
    for (const int64_t taps : {1, 7, 151}) {  // the last reaches beyond both ends from everywhere
      RequestBuilder builder = Drifting(kSame).Request("nystrom");
      builder.Param("num_landmarks", 6.0)
          .Floats("depthwise_conv", {heads, taps}, Normals(heads * taps, 9, 0.1));
      ExpectMatchesLowRankOracle(builder.request(), 4 * 5, "taps " + std::to_string(taps));
    }
  }
}

TEST_P(Nystrom, LengthsMatchReferenceAndPaddingMayBeAnything) {
  const LowRankSizes s{.batch = 4, .q_len = 70};
  Tokens tokens = Drifting(s);
  const auto add = [](RequestBuilder& builder) {
    // Landmarks of 41 tokens, exact attention of 5, nothing, and all.
    builder.Integers("key_lengths", {4}, {41, 5, 0, 70})
        .Floats("depthwise_conv", {1, 5}, Normals(5, 9, 0.1))
        .Param("num_landmarks", 6.0)
        .Param("return_weights", true)
        .Param("return_residual", true);
  };
  RequestBuilder clean = tokens.Request("nystrom");
  add(clean);
  ExpectMatchesLowRankOracle(clean.request(), 4 * 5, "lengths");
  const Values values = RunByName(clean.request());
  for (int64_t h = 0; h < 2; ++h) {
    tokens.Key(0, h, 41, 3) = kNan;
    tokens.Key(1, h, 69, 3) = kNan;
    tokens.Value(0, h, 41, 0) = std::numeric_limits<float>::infinity();
    tokens.Value(2, h, 0, 0) = kNan;
  }
  RequestBuilder poisoned = tokens.Request("nystrom");
  add(poisoned);
  EXPECT_EQ(RunByName(poisoned.request()), values);
  const size_t rows = 4 * 70;  // of a batch entry
  for (size_t n = 2 * rows * 9; n < 3 * rows * 9; ++n) EXPECT_EQ(values.at("output")[n], 0.0);
  for (size_t n = 0; n < rows * 70; ++n) {
    if (n % 70 < 41) continue;
    EXPECT_EQ(values.at("weights")[n], 0.0);
  }
  for (size_t n = 4; n < 12; ++n) EXPECT_EQ(values.at("residual")[n], 0.0);
}

TEST_P(Nystrom, PaddedQueryIsInNoLandmark) {
  Tokens tokens = Drifting({.q_len = 70});
  const auto run = [&] {
    RequestBuilder builder = tokens.Request("nystrom");
    builder.Integers("key_lengths", {2}, {41, 70}).Param("num_landmarks", 6.0);
    return RunByName(builder.request()).at("output");
  };
  const std::vector<double> clean = run();
  tokens.q[41 * 16] = kNan;  // batch entry 0, head 0
  const std::vector<double> poisoned = run();
  for (size_t n = 0; n < clean.size(); ++n) {
    if (n / 9 == 41) {
      EXPECT_TRUE(std::isnan(poisoned[n]));
    } else {
      EXPECT_EQ(poisoned[n], clean[n]) << n;
    }
  }
}

TEST_P(Nystrom, ReducesToScaledDotProductWithALandmarkForEachToken) {
  RequestBuilder nystrom = Tokens(kSame).Request("nystrom");
  nystrom.Param("num_landmarks", 70.0).Param("return_weights", true);
  RequestBuilder plain = Tokens(kSame).Request("scaled_dot_product");
  plain.Param("return_weights", true);
  EXPECT_EQ(RunByName(nystrom.request()), RunByName(plain.request()));
}

TEST_P(Nystrom, ReducesToScaledDotProductWhenSegmentsRepeatOneToken) {
  // Queries and keys of a segment are the same: its landmark is exact, and so is the product of the
  // three matrices once the iterations have found the inverse. 72 tokens in 6 segments.
  const LowRankSizes s{.num_heads = 1, .num_kv_heads = 1, .q_len = 72, .kv_len = 72};
  Tokens tokens(s);
  const std::vector<float> rows = Normals(6 * 16, 4, 2);
  for (size_t n = 0; n < tokens.q.size(); ++n) {
    tokens.q[n] = tokens.k[n] = rows[n / 16 % 72 / 12 * 16 + n % 16];
  }
  RequestBuilder nystrom = tokens.Request("nystrom");
  nystrom.Param("num_landmarks", 6.0).Param("return_residual", true);
  const Values values = RunByName(nystrom.request());
  ExpectAllNear(values.at("output"),
                RunByName(tokens.Request("scaled_dot_product").request()).at("output"), 1e-4);
  for (const double residual : values.at("residual")) EXPECT_LT(residual, 1e-5);
}

TEST_P(Nystrom, GivesTheNumbersOfItsDefinition) {
  // One landmark: each matrix of one column is all ones, the middle one is 1 and its own inverse.
  // What is left is softmax(K-landmark . keys): scores 2 q k with q = mean = 1/2, k = ln 3 and 0.
  RequestBuilder builder("nystrom");
  builder.Floats("q", {1, 1, 2, 1}, {1, 0})
      .Floats("k", {1, 1, 2, 1}, {std::log(3.0f), 0})
      .Floats("v", {1, 1, 2, 1}, {8, 16})
      .Floats("depthwise_conv", {1, 3}, {100, 1, 10})
      .Param("num_landmarks", 1.0)
      .Param("scale", 2.0)
      .Param("return_weights", true);
  const Values values = RunByName(builder.request());
  ExpectAllNear(values.at("weights"), {0.75, 0.25, 0.75, 0.25}, 1e-6);
  // 10, and 8 + 10 * 16 for the first token, 100 * 8 + 16 for the second.
  ExpectAllNear(values.at("output"), {178, 826}, 1e-4);
}

TEST_P(Nystrom, ResidualFallsWithTheIterations) {
  double last = 2;
  for (const double iterations : {1, 2, 3}) {
    RequestBuilder builder = Drifting(kSame).Request("nystrom");
    builder.Param("num_landmarks", 6.0)
        .Param("iterations", iterations)
        .Param("return_residual", true);
    const std::vector<double> residuals = RunByName(builder.request()).at("residual");
    const double now = *std::ranges::max_element(residuals);
    EXPECT_LT(now, last) << iterations << " iterations";
    last = now;
  }
  EXPECT_LT(last, 0.01);
}

TEST_P(Nystrom, NanStaysInItsHeads) {
  Tokens tokens = Drifting({.q_len = 70});
  tokens.Key(1, 0, 5, 2) = kNan;  // query heads 0 and 1 of the second batch entry
  RequestBuilder builder = tokens.Request("nystrom");
  builder.Param("num_landmarks", 6.0);
  const std::vector<double> output = RunByName(builder.request()).at("output");
  for (size_t n = 0; n < output.size(); ++n) {
    EXPECT_EQ(std::isnan(output[n]), n / 630 == 4 || n / 630 == 5) << n;
  }
}

TEST_P(Nystrom, ThreadsChangeNoBit) {
  RequestBuilder builder = Drifting({.q_len = 900, .kv_len = 900}).Request("nystrom");
  builder.Param("num_landmarks", 6.0)
      .Param("return_weights", true)
      .Param("return_residual", true)
      .Floats("depthwise_conv", {1, 33}, Normals(33, 9, 0.1));
  ExpectSameBitsForAnyThreads(builder.request());
}

TEST_P(Nystrom, CostIsLinearInTheLength) {
  const LowRankSizes s{.q_len = 5000, .kv_len = 5000};
  RequestBuilder builder = Tokens(s).Request("nystrom");
  builder.Param("num_landmarks", 20.0).Floats("depthwise_conv", {1, 3}, {1, 2, 3});
  const Cost cost = EstimateCost(builder.request(), 1);
  // Weights, here those between landmarks, are a second pass over the scores.
  const double heads = 2 * 4, attention = 2 * 2 * 5000 * 20 * (16 + 9);
  const double between = 2 * 2 * 20 * 20 * 16;
  const double inverse = 6 * 8 * 20 * 20 * 20, values = 2 * 20 * 20 * 9, conv = 2 * 5000 * 3 * 9;
  EXPECT_EQ(cost.flops, heads * (attention + between + inverse + values + conv));
  EXPECT_LT(cost.scratch_bytes, 5000 * 5000);
}

TEST_P(Nystrom, BadArgumentsAreRefused) {
  const Tokens tokens(kSame);
  const auto refused = [&](const char* name, double value) {
    RequestBuilder builder = tokens.Request("nystrom");
    builder.Param(name, value);
    ExpectBothRefuse(builder.request(), ErrorCode::kRange, name);
  };
  refused("num_landmarks", 71);
  refused("num_landmarks", 0);
  refused("iterations", 0);
  refused("iterations", 101);
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1, 4}, {3, 5}}) {
    RequestBuilder builder = tokens.Request("nystrom");
    builder.Floats("depthwise_conv", shape, Normals(shape[0] * shape[1], 1));
    ExpectBothRefuse(builder.request(), ErrorCode::kShape, "depthwise_conv");
  }
  RequestBuilder cross = Tokens(LowRankSizes{}).Request("nystrom"),
                 causal = tokens.Request("nystrom");
  ExpectBothRefuse(cross.request(), ErrorCode::kShape, "kv_len");
  causal.Param("causal", true);
  ExpectBothRefuse(causal.request(), ErrorCode::kOption, "causal");
}

TEST_P(Nystrom, ResultsNeedMemoryOfTheirOwn) {
  Buffer<float> q({1, 1, 4, 8}, Layout::kDense, 0);
  Buffer<float> k = q, v = q, output = q;
  EXPECT_THROW(NystromAttention(q.view(), k.view(), v.view(), {}, {.output = v.view()}), Error);
  TensorView<float> inside = output.view();
  inside.shape = {1, 1, 1, 1};
  EXPECT_THROW(NystromAttention(q.view(), k.view(), v.view(), {},
                                {.output = output.view(), .residual = inside}),
               Error);
}

}  // namespace
}  // namespace heed::testing
