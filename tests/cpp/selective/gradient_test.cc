// Gradients of rows that attend to chosen keys, against central differences of the float64 oracle.
// Choices are the same on both sides of a difference: steps are small beside the gaps of scores.
#include "heed/gradient.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "backward_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "selective_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class SelectiveGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(SelectiveGradient);

// A row with small blocks, so that queries leave keys out.
struct Row {
  std::string id;
  std::function<void(RequestBuilder&, const SelectiveSizes&)> add;
};

void AddStreaming(RequestBuilder& builder, const SelectiveSizes&) {
  builder.Param("recent_tokens", 3.0).Param("sink_tokens", 2.0);
}

void AddBlocks(RequestBuilder& builder, const SelectiveSizes&) {
  builder.Param("key_block", 3.0).Param("top_blocks", 2.0);
}

void AddCausalBlocks(RequestBuilder& builder, const SelectiveSizes& s) {
  AddBlocks(builder, s);
  builder.Param("causal", true);
}

// Forward gathers the queries of blocks of this size.
void AddWideBlocks(RequestBuilder& builder, const SelectiveSizes&) {
  builder.Param("key_block", 32.0).Param("top_blocks", 2.0).Param("causal", true);
}

void AddPages(RequestBuilder& builder, const SelectiveSizes&) {
  builder.Param("page_size", 3.0).Param("top_pages", 2.0);
}

void AddIndex(RequestBuilder& builder, const SelectiveSizes& s) {
  builder.Floats("index_q", {s.batch, 2, s.q_len, 3}, Normals(s.batch * 2 * s.q_len * 3, 50))
      .Floats("index_k", {s.batch, s.kv_len, 3}, Normals(s.batch * s.kv_len * 3, 51))
      .Floats("index_weights", {s.batch, 2, s.q_len}, Normals(s.batch * 2 * s.q_len, 52))
      .Param("top_k", 4.0)
      .Param("causal", true);
}

void AddHeavy(RequestBuilder& builder, const SelectiveSizes&) {
  builder.Param("recent_tokens", 2.0).Param("heavy_tokens", 3.0);
}

std::vector<Row> Rows() {
  return {{"streaming", AddStreaming},
          {"block_mixture", AddBlocks},
          {"block_mixture", AddCausalBlocks},
          {"block_mixture", AddWideBlocks},
          {"quest", AddPages},
          {"indexed", AddIndex},
          {"heavy_hitter", AddHeavy}};
}

RequestBuilder RequestOf(const Row& row, const SelectiveSizes& s, uint64_t seed) {
  RequestBuilder builder = SelectiveRequest(row.id, s, seed);
  row.add(builder, s);
  builder.Param("return_lse", true);
  return builder;
}

TEST_P(SelectiveGradient, MatchesDifferencesOfReference) {
  for (const Row& row : Rows()) {
    for (const SelectiveSizes& s :
         {SelectiveSizes{1, 1, 1, 1, 1, 1, 1}, SelectiveSizes{2, 4, 2, 11, 11, 3, 5}}) {
      ExpectElementsMatch(RequestOf(row, s, 20).request(), kGradientMaxError, row.id);
    }
  }
}

TEST_P(SelectiveGradient, MatchesAlongDirectionsAroundTiles) {
  for (const Row& row : Rows()) {
    for (const SelectiveSizes& s :
         {SelectiveSizes{1, 3, 1, 65, 65, 17, 9}, SelectiveSizes{2, 2, 2, 130, 130, 12, 33}}) {
      ExpectDirectionsMatch(RequestOf(row, s, 30).request(), kGradientMaxError,
                            row.id + ", length " + std::to_string(s.kv_len));
    }
  }
}

TEST_P(SelectiveGradient, MatchesWithOptionsLengthsAndOffsets) {
  for (const Row& row : Rows()) {
    if (row.id == "heavy_hitter") continue;  // its tokens are queries and keys
    const SelectiveSizes s = {3, 4, 2, 9, 14, 3, 4};
    RequestBuilder builder = RequestOf(row, s, 40);
    builder.Integers("key_lengths", {3}, {14, 0, 8})
        .Floats("bias", {1, 4, 1, 14}, Normals(4 * 14, 5))
        .Floats("alibi_slopes", {4}, Normals(4, 6))
        .Floats("sinks", {4}, Normals(4, 7))
        .Param("softcap", 5.0)
        .Param("scale", 2.0)
        .Param("query_offset", std::vector<double>{5, 0, -2});
    ExpectElementsMatch(builder.request(), kGradientMaxError, row.id);
  }
}

// Weights of nearly 1: errors grow with the logits.
TEST_P(SelectiveGradient, MatchesWithLargeLogits) {
  for (const Row& row : Rows()) {
    RequestBuilder builder = RequestOf(row, {1, 2, 1, 12, 12, 4, 3}, 50);
    builder.Param("scale", 8.0);
    ExpectElementsMatch(builder.request(), 4 * kGradientMaxError, row.id);
  }
}

// Fills the tokens from `first` on with NaN, in every head.
void Poison(std::vector<float>& values, int64_t len, int64_t dim, int64_t first) {
  for (size_t n = 0; n < values.size(); ++n) {
    if (static_cast<int64_t>(n) / dim % len >= first) values[n] = kNan;
  }
}

TEST_P(SelectiveGradient, TokensBeyondTheirLengthGetExactlyZero) {
  for (const Row& row : Rows()) {
    const SelectiveSizes s = {1, 2, 2, 9, 9, 3, 4};
    RequestBuilder builder(row.id);
    std::vector<float> k = Normals(2 * 9 * 3, 2), v = Normals(2 * 9 * 4, 3);
    Poison(k, 9, 3, 6);
    Poison(v, 9, 4, 6);
    builder.Floats("q", {1, 2, 9, 3}, Normals(2 * 9 * 3, 1))
        .Floats("k", {1, 2, 9, 3}, k)
        .Floats("v", {1, 2, 9, 4}, v)
        .Integers("key_lengths", {1}, {6});
    row.add(builder, s);
    Backward backward(builder.request());
    for (size_t n = 0; n < backward.gradients.size(); ++n) {
      const std::vector<float>& values = backward.gradients.values(n);
      const size_t dim = values.size() / (2 * 9);
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_TRUE(std::isfinite(values[i])) << row.id;
        const bool exists = n == 0 || i / dim % 9 < 6;
        EXPECT_TRUE(exists || values[i] == 0.0f) << row.id;
      }
    }
  }
}

TEST_P(SelectiveGradient, NanThatArrivesReachesWhatTheQuerySees) {
  const SelectiveSizes s = {1, 1, 1, 12, 12, 2, 1};
  Backward backward(RequestOf({"streaming", AddStreaming}, s, 60).request());
  backward.d_results.values(0)[9] = kNan;  // sees 0, 1, 7, 8, 9
  backward.Run(RequestOf({"streaming", AddStreaming}, s, 60).request());
  for (size_t t = 0; t < 12; ++t) {
    const bool seen = t < 2 || (t > 6 && t < 10);
    EXPECT_EQ(std::isnan(backward.gradients.values(0)[2 * t]), t == 9) << "query " << t;
    EXPECT_EQ(std::isnan(backward.gradients.values(1)[2 * t]), seen) << "key " << t;
    EXPECT_EQ(std::isnan(backward.gradients.values(2)[t]), seen) << "value " << t;
  }
}

TEST_P(SelectiveGradient, SameBitsForAnyNumberOfThreads) {
  for (const Row& row : Rows()) {
    ExpectSameGradientsForAnyThreads(RequestOf(row, {2, 6, 3, 700, 700, 8, 8}, 70).request(),
                                     row.id);
  }
}

TEST(SelectiveGradientMemory, GrowsWithTheLength) {
  for (const Row& row : Rows()) {
    const auto bytes = [&](int64_t len) {
      return static_cast<double>(
          BackwardScratchBytes(RequestOf(row, {1, 2, 1, len, len, 8, 8}, 1).request()));
    };
    EXPECT_GT(bytes(2048), 0) << row.id;
    EXPECT_LT(bytes(4096), 2.2 * bytes(2048)) << row.id;
  }
}

TEST(SelectiveGradientRefuses, ResultsWithoutAGradientAndOtherTypes) {
  for (const Row& row : Rows()) {
    RequestBuilder weights = RequestOf(row, {1, 1, 1, 4, 4, 2, 2}, 1);
    weights.Param("return_weights", true);
    EXPECT_THAT(BackwardRefusal(weights.request()),
                ::testing::HasSubstr("unsupported: return_weights"))
        << row.id;
    RequestBuilder halves = RequestOf(row, {1, 1, 1, 4, 4, 2, 2}, 1);
    Request request = halves.request();
    request.inputs[0].tensor.dtype = DType::kFloat16;
    EXPECT_THAT(BackwardRefusal(request), ::testing::HasSubstr("q has element type float16"))
        << row.id;
  }
}

TEST(SelectiveGradientRefuses, WhatForwardRefuses) {
  RequestBuilder zero = RequestOf({"streaming", [](RequestBuilder&, const SelectiveSizes&) {}},
                                  {1, 1, 1, 4, 4, 2, 2}, 1);
  zero.Param("recent_tokens", 0.0);
  EXPECT_THAT(BackwardRefusal(zero.request()), ::testing::HasSubstr("range: recent_tokens"));
}

}  // namespace
}  // namespace heed::testing
