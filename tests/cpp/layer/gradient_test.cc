// Gradients of multi-head layers against central differences of the float64 oracle.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backward_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "layer_case.h"
#include "simd_targets.h"
#include "src/parallel/dry_run.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr LayerSizes kSmall = {.batch = 2,
                               .q_len = 3,
                               .kv_len = 5,
                               .num_heads = 4,
                               .num_kv_heads = 2,
                               .head_dim = 3,
                               .head_dim_v = 2,
                               .embed_dim = 5,
                               .kdim = 4,
                               .vdim = 3,
                               .out_dim = 7};

class LayerGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(LayerGradient);

std::string SizesOf(const LayerSizes& s) { return " of " + std::to_string(s.q_len) + " queries"; }

void ExpectElements(const LayerCase& c, const std::string& what) {
  ExpectElementsMatch(c.Build().request(), kLayerGradientMaxError, c.id + ", " + what);
}

// Everything that the attention inside takes.
LayerCase WithOptions(LayerCase c) {
  Random random(5);
  const LayerSizes& s = c.sizes;
  c.tensors["sinks"] = DrawFloats(random, {s.num_heads}, 1);
  c.tensors["bias"] = DrawFloats(random, {1, s.num_heads, s.q_len, s.kv_len}, 1);
  c.tensors["alibi_slopes"] = DrawFloats(random, {s.num_heads}, 1);
  c.tensors["head_mask"] = DrawFloats(random, {s.num_heads}, 1);
  c.params["softcap"] = 3.0;
  c.params["scale"] = 0.7;
  c.params["query_offset"] = 1.0;
  c.params["return_lse"] = true;
  return c;
}

LayerCase WithExtraKeys(LayerCase c) {
  Random random(6);
  const LayerSizes& s = c.sizes;
  c.tensors["bias_k"] = DrawFloats(random, {s.num_kv_heads, s.head_dim}, 1);
  c.tensors["bias_v"] = DrawFloats(random, {s.num_kv_heads, s.head_dim_v}, 1);
  c.params["add_zero_attn"] = true;
  return c;
}

// Without softcap, sinks and extra keys b_k adds the same to all scores of a row, which softmax
// does not notice: its gradient is 0 but for rounding.
LayerCase WithoutKeyBias(LayerCase c) {
  c.tensors.erase("b_k");
  return c;
}

TEST_P(LayerGradient, GradientOfAKeyBiasIsZeroButForRounding) {
  const LayerCase c = MakeLayerCase("grouped_query", kSmall);
  const Values gradients = Backward(c.Build().request()).gradients.ByName();
  double largest = 0;
  for (const double x : gradients.at("w_k")) largest = std::max(largest, std::abs(x));
  for (const double x : gradients.at("b_k")) EXPECT_NEAR(x, 0, kLayerGradientMaxError * largest);
}

TEST_P(LayerGradient, MatchesDifferencesOfReference) {
  for (const char* id : {"multi_head", "multi_query", "grouped_query"}) {
    LayerSizes sizes = kSmall;
    if (id == std::string("multi_head")) sizes.num_kv_heads = 4;
    if (id == std::string("multi_query")) sizes.num_kv_heads = 1;
    const LayerCase c = MakeLayerCase(id, sizes);
    ExpectElements(WithOptions(c), "options");
    LayerCase bare = WithoutKeyBias(c);
    ExpectElements(bare, "plain");
    for (const char* name : {"w_o", "b_o", "b_q"}) bare.tensors.erase(name);
    ExpectElements(bare, "without w_o");
    if (id == std::string("multi_query")) continue;
    ExpectElements(WithExtraKeys(c), "extra keys");
    ExpectElements(WithExtraKeys(WithOptions(c)), "extra keys and options");
  }
}

TEST_P(LayerGradient, MatchesBehindMasksAndForEmptyRows) {
  LayerCase c = WithOptions(MakeLayerCase("grouped_query", kSmall));
  c.params["causal"] = true;
  c.params["window_left"] = 1.0;
  ExpectElements(c, "causal window");
  c.params.erase("causal");
  c.params.erase("window_left");
  c.keep = {1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1};
  ExpectElements(c, "an empty row");
  c.key_lengths = {0, 4};
  ExpectElements(c, "an empty batch entry");
  ExpectElements(WithExtraKeys(c), "extra keys alone");
}

TEST_P(LayerGradient, MatchesAlongDirectionsForOddSizes) {
  LayerSizes long_keys = kSmall, long_queries = kSmall;
  long_keys.kv_len = 300;
  long_queries.q_len = 107;
  long_queries.head_dim = 17;
  for (const LayerSizes& s : {long_keys, long_queries}) {
    const LayerCase c = MakeLayerCase("grouped_query", s);
    ExpectDirectionsMatch(WithoutKeyBias(c).Build().request(), kLayerGradientMaxError,
                          c.id + SizesOf(s));
    const LayerCase more = WithExtraKeys(WithOptions(c));
    ExpectDirectionsMatch(more.Build().request(), kLayerGradientMaxError, "options" + SizesOf(s));
  }
}

TEST_P(LayerGradient, MatchesForLargeLogits) {
  LayerCase c = WithoutKeyBias(MakeLayerCase("grouped_query", kSmall));
  c.params["scale"] = 8.0;
  ExpectElements(c, "large logits");
}

TEST_P(LayerGradient, SameBitsForAnyNumberOfThreads) {
  for (const char* id : {"multi_head", "multi_query"}) {
    LayerSizes sizes = {.batch = 2, .q_len = 70, .kv_len = 90};
    if (id == std::string("multi_query")) sizes.num_kv_heads = 1;
    LayerCase c = WithOptions(MakeLayerCase(id, sizes));
    if (sizes.num_kv_heads > 1) c = WithExtraKeys(c);
    ExpectSameGradientsForAnyThreads(c.Build().request(), id);
  }
}

bool IsFinite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

TEST_P(LayerGradient, WhatIsMaskedReachesNothing) {
  LayerCase c = WithOptions(MakeLayerCase("grouped_query", kSmall));
  c.key_lengths = {3, 0};
  const Values clean = Backward(c.Build().request()).gradients.ByName();
  for (const auto& [name, dim] : {std::pair("key", kSmall.kdim), std::pair("value", kSmall.vdim)}) {
    std::vector<float>& values = c.tensors[name].values;
    std::fill(values.begin() + 3 * dim, values.end(), kNan);
  }
  const Values spoilt = Backward(c.Build().request()).gradients.ByName();
  for (const auto& [name, gradient] : spoilt) EXPECT_EQ(gradient, clean.at(name)) << name;
  for (const auto& [name, dim] : {std::pair("key", kSmall.kdim), std::pair("value", kSmall.vdim)}) {
    const std::vector<double>& rows = spoilt.at(name);
    for (size_t n = static_cast<size_t>(3 * dim); n < rows.size(); ++n) EXPECT_EQ(rows[n], 0);
  }
}

// Where the mechanism's heads are constant 0, whatever arrives.
TEST_P(LayerGradient, EmptyRowsGiveExactlyZero) {
  LayerCase c = MakeLayerCase("grouped_query", kSmall);
  c.key_lengths = {0, 5};
  c.tensors["head_mask"] = {{4}, {1, 0.5f, 2, 1}};
  Backward backward(c.Build().request());
  std::fill_n(backward.d_results.values(0).begin(), kSmall.q_len * kSmall.out_dim, kNan);
  backward.Run(c.Build().request());
  const Values gradients = backward.gradients.ByName();
  for (const auto& [name, gradient] : gradients) {
    EXPECT_EQ(IsFinite(gradient), name != "b_o") << name;
  }
  for (size_t n = 0; n < static_cast<size_t>(kSmall.q_len * kSmall.embed_dim); ++n) {
    EXPECT_EQ(gradients.at("query")[n], 0);
  }
}

TEST_P(LayerGradient, NanThatArrivesReachesItsRow) {
  const LayerCase c = MakeLayerCase("multi_head", LayerSizes{.batch = 1, .q_len = 4, .kv_len = 4});
  LayerCase causal = c;
  causal.params["causal"] = true;
  Backward backward(causal.Build().request());
  const size_t dim = 48;
  backward.d_results.values(0)[2 * dim + 1] = kNan;
  backward.Run(causal.Build().request());
  const Values gradients = backward.gradients.ByName();
  for (size_t n = 0; n < 4 * dim; ++n) {
    EXPECT_EQ(std::isnan(gradients.at("query")[n]), n / dim == 2) << n;
    EXPECT_EQ(std::isnan(gradients.at("key")[n]), n / dim <= 2) << n;
  }
}

// Factor 0 prunes a head with all that is in it; the others do not notice.
TEST_P(LayerGradient, PrunedHeadsGetAndGiveExactlyZero) {
  LayerCase c = MakeLayerCase("grouped_query", kSmall);
  c.tensors["sinks"] = {{4}, {0.5f, 1, -1, 0}};
  c.tensors["head_mask"] = {{4}, {1, 0, 0, 0}};
  const Values clean = Backward(c.Build().request()).gradients.ByName();
  const auto spoil = [&](const char* name, size_t begin, size_t end) {
    std::vector<float>& values = c.tensors[name].values;
    std::fill(values.begin() + static_cast<int64_t>(begin),
              values.begin() + static_cast<int64_t>(end), kNan);
  };
  spoil("w_q", 1 * 3 * 5, 4 * 3 * 5);
  spoil("w_k", 1 * 3 * 4, 2 * 3 * 4);
  spoil("w_v", 1 * 2 * 3, 2 * 2 * 3);
  const Values spoilt = Backward(c.Build().request()).gradients.ByName();
  for (const auto& [name, gradient] : spoilt) {
    if (name == "head_mask") continue;
    EXPECT_EQ(gradient, clean.at(name)) << name;
  }
  for (size_t n = 1 * 3 * 5; n < spoilt.at("w_q").size(); ++n) EXPECT_EQ(spoilt.at("w_q")[n], 0);
  for (size_t n = 1; n < 4; ++n) EXPECT_EQ(spoilt.at("sinks")[n], 0);
}

TEST(LayerGradientBoundary, WhatHasNoGradientIsRefusedByName) {
  LayerCase c = MakeLayerCase("grouped_query", kSmall);
  c.params["return_weights"] = true;
  EXPECT_THAT(BackwardRefusal(c.Build().request()), HasSubstr("unsupported: return_weights"));
}

TEST(LayerGradientBoundary, OtherElementTypesAreRefused) {
  const LayerCase c = MakeLayerCase("grouped_query", kSmall);
  const RequestBuilder builder = c.Build();
  Request request = builder.request();
  for (NamedTensor& input : request.inputs) {
    if (input.name == "w_q") input.tensor.dtype = DType::kFloat16;
  }
  EXPECT_THAT(BackwardRefusal(request), HasSubstr("dtype: w_q has element type float16"));
}

// What one thread allocates beyond what a sequence of half the length takes.
int64_t MoreBytes(int64_t len) {
  const auto bytes = [](int64_t tokens) {
    const LayerCase c = MakeLayerCase(
        "multi_head", {.batch = 1, .q_len = 1, .kv_len = 1, .num_heads = 2, .num_kv_heads = 2});
    const RequestBuilder builder = c.Build();
    Request request = builder.request();
    for (NamedTensor& input : request.inputs) {
      if (input.tensor.rank == 3 && input.name.find('_') == std::string::npos) {
        input.tensor.shape[1] = tokens;
        input.tensor.strides = {0, 0, 1, 0};
      }
    }
    const BackwardPlan plan = PlanBackward(request);
    static float nothing = 0;
    const int64_t shape[] = {1, tokens, 48};
    const NamedTensor d_output[] = {{"output", ContiguousTensor(DType::kFloat32, &nothing, shape)}};
    const NamedTensor d_query[] = {{"query", ContiguousTensor(DType::kFloat32, &nothing, shape)}};
    DryRun dry;
    IdlePool pool(1);
    RunBackward(request, d_output, d_output, d_query, &pool);
    return dry.most_bytes();
  };
  return bytes(len) - bytes(len / 2);
}

TEST(LayerGradientBoundary, MemoryGrowsWithTheLength) {
  EXPECT_LT(MoreBytes(1 << 15), (int64_t{1} << 14) * 48 * 4 * 40);
  EXPECT_NEAR(static_cast<double>(MoreBytes(1 << 18)),
              8.0 * static_cast<double>(MoreBytes(1 << 15)),
              0.2 * static_cast<double>(MoreBytes(1 << 18)));
}

}  // namespace
}  // namespace heed::testing
