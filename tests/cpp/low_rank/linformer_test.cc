// Linformer: against the oracle, its limit, and numbers from its definition.
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

class Linformer : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(Linformer);

// Weights of which the absolute values of a row sum up to about 2.
std::vector<float> Weights(int64_t rows, int64_t cols, uint64_t seed) {
  return Normals(rows * cols, seed, 2.5 / static_cast<double>(cols));
}

TEST_P(Linformer, MatchesReference) {
  for (const LowRankSizes& s : ManyLowRankSizes()) {
    for (const bool per_head : {false, true}) {
      RequestBuilder builder = Tokens(s).Request("linformer");
      const int64_t heads = per_head ? s.num_kv_heads : 1, len = s.kv_len + 3;
      std::vector<int64_t> shape = {heads, 20, len};
      if (!per_head) shape.erase(shape.begin());
      builder.Floats("key_projection", shape, Weights(heads * 20, len, 5));
      if (per_head) builder.Floats("value_projection", {20, len}, Weights(20, len, 6));
      builder.Param("return_weights", true).Param("return_lse", true);
      // A row of absolute weights sums up to 3 at most, |v| stays below 5.
      ExpectMatchesLowRankOracle(builder.request(), 15, "kv_len " + std::to_string(s.kv_len));
    }
  }
}

TEST_P(Linformer, LengthsMatchReferenceAndPaddingMayBeAnything) {
  const LowRankSizes s{.batch = 3};
  Tokens tokens(s);
  RequestBuilder clean = tokens.Request("linformer");
  for (int64_t h = 0; h < 2; ++h) {
    tokens.Key(0, h, 41, 3) = kNan;
    tokens.Value(0, h, 69, 0) = std::numeric_limits<float>::infinity();
    tokens.Value(1, h, 0, 0) = kNan;
  }
  RequestBuilder poisoned = tokens.Request("linformer");
  for (RequestBuilder* builder : {&clean, &poisoned}) {
    builder->Floats("key_projection", {20, 70}, Weights(20, 70, 5))
        .Integers("key_lengths", {3}, {41, 0, 70})
        .Param("return_weights", true)
        .Param("return_lse", true);
  }
  ExpectMatchesLowRankOracle(clean.request(), 15, "lengths");
  const Values values = RunByName(clean.request());
  EXPECT_EQ(RunByName(poisoned.request()), values);
  const size_t rows = 4 * 33;  // of a batch entry
  for (size_t n = rows * 9; n < 2 * rows * 9; ++n) EXPECT_EQ(values.at("output")[n], 0.0);
  for (size_t n = rows * 20; n < 2 * rows * 20; ++n) EXPECT_EQ(values.at("weights")[n], 0.0);
  for (size_t n = rows; n < 2 * rows; ++n) EXPECT_EQ(values.at("lse")[n], -INFINITY);
}

TEST_P(Linformer, ReducesToScaledDotProductWhenProjectionsAreTheIdentity) {
  const LowRankSizes s{};
  std::vector<float> identity(70 * 70, 0.0f);
  for (size_t n = 0; n < 70; ++n) identity[n * 71] = 1.0f;
  RequestBuilder linformer = Tokens(s).Request("linformer");
  linformer.Floats("key_projection", {70, 70}, identity);
  RequestBuilder plain = Tokens(s).Request("scaled_dot_product");
  // Products with 0 and 1 are exact, and so are their sums.
  EXPECT_EQ(RunByName(linformer.request()), RunByName(plain.request()));
}

TEST_P(Linformer, GivesTheNumbersOfItsDefinition) {
  // E k = (0, ln 3): weights 1/4 and 3/4 of F v = (10 + 20, 2 * 20).
  RequestBuilder builder("linformer");
  builder.Floats("q", {1, 1, 1, 1}, {1})
      .Floats("k", {1, 1, 2, 1}, {1, 1})
      .Floats("v", {1, 1, 2, 1}, {10, 20})
      .Floats("key_projection", {2, 2}, {1, -1, std::log(3.0f), 0})
      .Floats("value_projection", {2, 2}, {1, 1, 0, 2})
      .Param("return_weights", true);
  const Values values = RunByName(builder.request());
  ExpectAllNear(values.at("weights"), {0.25, 0.75}, 2e-7);
  ExpectAllNear(values.at("output"), {37.5}, 1e-5);
}

TEST_P(Linformer, VisibleNanIsInEveryRowOfItsHeads) {
  Tokens tokens(LowRankSizes{});
  tokens.Key(1, 0, 5, 2) = kNan;  // query heads 0 and 1 of the second batch entry
  RequestBuilder builder = tokens.Request("linformer");
  builder.Floats("key_projection", {20, 70}, Weights(20, 70, 5));
  const std::vector<double> output = RunByName(builder.request()).at("output");
  const size_t head = 33 * 9;
  for (size_t n = 0; n < output.size(); ++n) {
    EXPECT_EQ(std::isnan(output[n]), n / head == 4 || n / head == 5) << n;
  }
}

TEST_P(Linformer, ThreadsChangeNoBit) {
  RequestBuilder builder = Tokens(LowRankSizes{.kv_len = 1000}).Request("linformer");
  builder.Floats("key_projection", {20, 1000}, Weights(20, 1000, 5));
  ExpectSameBitsForAnyThreads(builder.request());
}

TEST_P(Linformer, CostIsThatOfTheProductsAndTheAttention) {
  const LowRankSizes s{};
  RequestBuilder builder = Tokens(s).Request("linformer");
  builder.Floats("key_projection", {20, 70}, Weights(20, 70, 5));
  const double project = 2.0 * 2 * 2 * 20 * 70 * (16 + 9),
               attend = 2.0 * 2 * 4 * 33 * 20 * (16 + 9);
  EXPECT_EQ(EstimateCost(builder.request(), 1).flops, project + attend);
}

TEST_P(Linformer, BadArgumentsAreRefused) {
  const Tokens tokens(LowRankSizes{});
  const auto refused = [&](std::vector<int64_t> shape, const char* name) {
    RequestBuilder builder = tokens.Request("linformer");
    builder.Floats("key_projection", {20, 70}, Weights(20, 70, 5));
    if (std::string(name) == "key_projection") {
      builder = tokens.Request("linformer");
    }
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    builder.Floats(name, shape, Normals(count, 1));
    ExpectBothRefuse(builder.request(), ErrorCode::kShape, name);
  };
  refused({20, 69}, "key_projection");     // does not reach the last token
  refused({4, 20, 70}, "key_projection");  // neither one nor num_kv_heads
  refused({21, 70}, "value_projection");   // other rows than key_projection
  RequestBuilder lengths = tokens.Request("linformer");
  lengths.Floats("key_projection", {20, 70}, Weights(20, 70, 5))
      .Integers("key_lengths", {2}, {71, 0});
  ExpectBothRefuse(lengths.request(), ErrorCode::kRange, "key_lengths");
  RequestBuilder none = tokens.Request("linformer");
  ExpectBothRefuse(none.request(), ErrorCode::kOption, "key_projection");
  RequestBuilder causal = tokens.Request("linformer");
  causal.Floats("key_projection", {20, 70}, Weights(20, 70, 5)).Param("causal", true);
  ExpectBothRefuse(causal.request(), ErrorCode::kOption, "causal");
}

TEST_P(Linformer, ResultsNeedMemoryOfTheirOwn) {
  Buffer<float> q({1, 1, 4, 8}, Layout::kDense, 0), projection({1, 1, 4, 4}, Layout::kDense, 0);
  LinformerOptions options;
  options.key_projection = projection.view();
  Buffer<float> k = q, v = q;
  EXPECT_THROW(heed::Linformer(q.view(), k.view(), v.view(), options, {.output = v.view()}), Error);
  options.key_projection = {};
  Buffer<float> output = q;
  EXPECT_THROW(heed::Linformer(q.view(), k.view(), v.view(), options, {.output = output.view()}),
               Error);
}

}  // namespace
}  // namespace heed::testing
