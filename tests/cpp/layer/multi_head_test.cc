// Multi-head attention: published numbers, the reference, its limits, and what is refused.
#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/layers.h"
#include "heed/registry.h"
#include "layer_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class MultiHeadLayer : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(MultiHeadLayer);

TEST_P(MultiHeadLayer, MatchesReference) {
  for (const LayerSizes& sizes :
       {LayerSizes{}, LayerSizes{.num_kv_heads = 2}, LayerSizes{.kdim = 20, .vdim = 70},
        LayerSizes{.batch = 1, .q_len = 1, .kv_len = 300, .num_heads = 1, .num_kv_heads = 1},
        LayerSizes{.num_heads = 3, .num_kv_heads = 1, .head_dim = 7, .head_dim_v = 11},
        LayerSizes{.embed_dim = 1, .kdim = 1, .vdim = 1, .out_dim = 1}}) {
    LayerCase c = MakeLayerCase("multi_head", sizes);
    c.params["return_weights"] = true;
    c.params["return_lse"] = true;
    ExpectLayerMatchesReference(c);
    c.params["average_weights"] = true;
    ExpectLayerMatchesReference(c);
  }
}

TEST_P(MultiHeadLayer, MatchesReferenceWithoutOptionalWeights) {
  LayerCase c = MakeLayerCase("multi_head", {});
  for (const char* name : {"b_q", "b_k", "b_v", "b_o", "w_o"}) {
    c.tensors.erase(name);
    ExpectLayerMatchesReference(c);
  }
}

TEST_P(MultiHeadLayer, MatchesReferenceWithExtraKeysAndEveryOption) {
  LayerCase c = MakeLayerCase("multi_head", {.q_len = 41, .num_kv_heads = 2});
  Random random(3);
  c.tensors["bias_k"] = DrawFloats(random, {2, 16}, 1);
  c.tensors["bias_v"] = DrawFloats(random, {2, 16}, 1);
  c.tensors["head_mask"] = {{4}, {1, 0, 0.5f, -2}};
  c.params["return_weights"] = true;
  c.params["return_lse"] = true;
  ExpectLayerMatchesReference(c);
  c.params["add_zero_attn"] = true;
  ExpectLayerMatchesReference(c);
  c.params["causal"] = true;
  c.params["softcap"] = 2.0;
  c.tensors["alibi_slopes"] = {{4}, {0.5f, 0.25f, 0.125f, 0.0625f}};
  c.tensors["sinks"] = {{4}, {0, 1, -1, 0.5f}};
  c.key_lengths = {41, 7};
  ExpectLayerMatchesReference(c);
  c.tensors.erase("bias_k");
  c.tensors.erase("bias_v");
  for (int64_t n = 0; n < 41 * 41; ++n) c.keep.push_back(n / 41 != 5 && random.Chance(0.5));
  ExpectLayerMatchesReference(c);
}

// keras-team/keras, multi_head_attention_test.py, test_correctness: 8 heads of 8; every kernel is
// the identity repeated along its middle axis; query = key = identity, value = arange(64) / 100.
// Its own tolerance is 0.01.
TEST_P(MultiHeadLayer, GivesTheNumbersOfKeras) {
  MultiHeadAttention layer({.embed_dim = 8, .num_heads = 8, .head_dim = 8});
  std::vector<float> kernel(8 * 8 * 8), bias(64), output_bias(8);
  for (size_t n = 0; n < kernel.size(); ++n) kernel[n] = n / 64 == n % 8 ? 1.0f : 0.0f;
  const NamedTensor weights[] = {{"query/kernel", StateTensor(kernel, {8, 8, 8})},
                                 {"query/bias", StateTensor(bias, {8, 8})},
                                 {"key/kernel", StateTensor(kernel, {8, 8, 8})},
                                 {"key/bias", StateTensor(bias, {8, 8})},
                                 {"value/kernel", StateTensor(kernel, {8, 8, 8})},
                                 {"value/bias", StateTensor(bias, {8, 8})},
                                 {"attention_output/kernel", StateTensor(kernel, {8, 8, 8})},
                                 {"attention_output/bias", StateTensor(output_bias, {8})}};
  layer.LoadKerasWeights(weights);
  std::vector<float> identity(64), value(64), output(64, kNan), attention(8 * 64, kNan);
  for (size_t i = 0; i < 64; ++i) {
    identity[i] = i % 9 == 0 ? 1.0f : 0.0f;
    value[i] = static_cast<float>(i) / 100;
  }
  const auto x = Contiguous<const float>(identity.data(), 1, 1, 8, 8);
  layer.Forward(x, x, Contiguous<const float>(value.data(), 1, 1, 8, 8), {},
                {.output = Contiguous(output.data(), 1, 1, 8, 8),
                 .weights = Contiguous(attention.data(), 1, 8, 8, 8)});
  const double rows[] = {2.406, 2.440, 2.473, 2.504, 2.535, 2.568, 2.602, 2.633};
  for (size_t n = 0; n < 64; ++n) EXPECT_NEAR(output[n], rows[n / 8], 1e-2) << n;
  for (size_t n = 0; n < 8 * 64; ++n) {
    EXPECT_NEAR(attention[n], n / 8 % 8 == n % 8 ? 0.1691 : 0.1187, 1e-4) << n;
  }
}

TEST_P(MultiHeadLayer, ReducesToScaledDotProductWithIdentityProjections) {
  LayerCase c = MakeLayerCase(
      "multi_head", {.num_heads = 1, .num_kv_heads = 1, .head_dim = 48, .head_dim_v = 48});
  std::vector<float> identity(48 * 48);
  for (size_t i = 0; i < 48; ++i) identity[i * 49] = 1;
  for (const char* name : {"w_q", "w_k", "w_v"}) c.tensors[name] = {{1, 48, 48}, identity};
  c.tensors["w_o"] = {{48, 1, 48}, identity};
  for (const char* name : {"b_q", "b_k", "b_v", "b_o"}) c.tensors.erase(name);
  const std::vector<double> layer = RunByName(c.Build().request()).at("output");
  RequestBuilder plain("scaled_dot_product");
  plain.Floats("q", {2, 1, 33, 48}, c.tensors["query"].values)
      .Floats("k", {2, 1, 41, 48}, c.tensors["key"].values)
      .Floats("v", {2, 1, 41, 48}, c.tensors["value"].values);
  EXPECT_EQ(layer, RunByName(plain.request()).at("output"));
}

TEST_P(MultiHeadLayer, EmptyRowGivesTheOutputBias) {
  LayerCase c = MakeLayerCase("multi_head", {});
  c.keep.assign(33 * 41, 1);
  std::fill_n(c.keep.begin() + 5 * 41, 41, uint8_t{0});
  c.params["return_lse"] = true;
  c.params["return_weights"] = true;
  ExpectLayerMatchesReference(c);
  const Values r = RunByName(c.Build().request());
  for (size_t o = 0; o < 48; ++o) {
    EXPECT_EQ(r.at("output")[5 * 48 + o], c.tensors["b_o"].values[o]);
  }
  EXPECT_EQ(r.at("lse")[5], -std::numeric_limits<double>::infinity());
  for (size_t j = 0; j < 41; ++j) EXPECT_EQ(r.at("weights")[5 * 41 + j], 0);
}

TEST_P(MultiHeadLayer, KeyOfZerosAloneGivesZeroWithLseZero) {
  LayerCase c = MakeLayerCase("multi_head", {});
  c.key_lengths = {0, 41};
  c.params["add_zero_attn"] = true;
  c.params["return_lse"] = true;
  ExpectLayerMatchesReference(c);
  EXPECT_EQ(RunByName(c.Build().request()).at("lse")[0], 0);
}

TEST_P(MultiHeadLayer, MaskedNanNeverMattersAndVisibleNanStaysInItsRow) {
  LayerCase c = MakeLayerCase("multi_head", {.q_len = 41});
  Random random(3);
  c.tensors["bias_k"] = DrawFloats(random, {4, 16}, 1);
  c.tensors["bias_v"] = DrawFloats(random, {4, 16}, 1);
  c.params["causal"] = true;
  c.params["return_weights"] = true;
  const Values clean = RunByName(c.Build().request());
  c.tensors["key"].values[20 * 48] = kNan;
  c.tensors["value"].values[20 * 48 + 3] = kNan;
  c.tensors["query"].values[7 * 48 + 1] = kNan;
  const Values spoilt = RunByName(c.Build().request());
  for (size_t i = 0; i < 2 * 41; ++i) {
    const bool lost = i == 7 || (i >= 20 && i < 41);
    for (size_t o = 0; o < 48; ++o) {
      const double value = spoilt.at("output")[i * 48 + o];
      EXPECT_EQ(std::isnan(value), lost) << i;
      if (!lost) {
        EXPECT_EQ(value, clean.at("output")[i * 48 + o]) << i;
      }
    }
  }
  ExpectLayerMatchesReference(c);
}

TEST_P(MultiHeadLayer, PrunedHeadDoesNotMatterEvenWhenItIsNotFinite) {
  LayerCase c = MakeLayerCase("multi_head", {});
  c.tensors["w_v"].values[16 * 48] = kNan;  // head 1
  c.tensors["head_mask"] = {{4}, {1, 0, 1, 1}};
  ExpectLayerMatchesReference(c);
  for (const double value : RunByName(c.Build().request()).at("output")) {
    EXPECT_TRUE(std::isfinite(value));
  }
}

TEST_P(MultiHeadLayer, SameBitsForAnyThreadCount) {
  LayerCase c = MakeLayerCase("multi_head", {.q_len = 130, .kv_len = 200});
  c.params["add_zero_attn"] = true;
  const RequestBuilder builder = c.Build();
  const auto run = [&](int threads) {
    std::vector<float> values(2 * 130 * 48, kNan);
    const NamedTensor output = {"output", StateTensor(values, {2, 130, 48})};
    heed::Run(builder.request(), std::span(&output, 1), MakeThreadPool(threads).get());
    return values;
  };
  const std::vector<float> one = run(1);
  for (const int threads : {2, 3, 7}) EXPECT_EQ(one, run(threads)) << threads;
}

template <typename Call>
void ExpectRefused(ErrorCode code, const std::string& text, Call&& call) {
  try {
    call();
    ADD_FAILURE() << text << ": no error";
  } catch (const Error& error) {
    EXPECT_STREQ(ErrorCodeName(error.code()), ErrorCodeName(code)) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

TEST(MultiHeadBoundary, RefusesWhatDoesNotFit) {
  const auto refused = [](ErrorCode code, const std::string& text, auto change) {
    LayerCase c = MakeLayerCase("multi_head", {});
    change(c);
    const RequestBuilder builder = c.Build();
    ExpectRefused(code, text, [&] { PlanOutputs(builder.request()); });
    ExpectRefused(code, "", [&] { reference::Run(builder.request()); });
  };
  refused(ErrorCode::kShape, "w_q", [](LayerCase& c) { c.tensors["w_q"].shape = {4, 48, 16}; });
  refused(ErrorCode::kShape, "w_v", [](LayerCase& c) { c.tensors["w_v"].shape = {8, 8, 48}; });
  refused(ErrorCode::kShape, "b_k", [](LayerCase& c) { c.tensors["b_k"] = {{1, 3}, {1, 2, 3}}; });
  refused(ErrorCode::kShape, "w_o", [](LayerCase& c) { c.tensors["w_o"].shape = {48, 2, 32}; });
  refused(ErrorCode::kShape, "head_mask", [](LayerCase& c) {
    c.tensors["head_mask"] = {{2}, {1, 1}};
  });
  refused(ErrorCode::kOption, "bias_v", [](LayerCase& c) {
    c.tensors["bias_k"] = {{4, 16}, std::vector<float>(64)};
  });
  refused(ErrorCode::kOption, "w_k", [](LayerCase& c) { c.tensors.erase("w_k"); });
  refused(ErrorCode::kOption, "query_offset", [](LayerCase& c) { c.params["causal"] = true; });
}

TEST(MultiHeadBoundary, StateDictsMustFitTheLayer) {
  MultiHeadAttention layer({.embed_dim = 4, .num_heads = 2});
  std::vector<float> values(48);
  std::vector<NamedTensor> state = {{"in_proj_weight", StateTensor(values, {12, 4})},
                                    {"in_proj_bias", StateTensor(values, {12})},
                                    {"out_proj.weight", StateTensor(values, {4, 4})},
                                    {"out_proj.bias", StateTensor(values, {4})}};
  EXPECT_NO_THROW(layer.LoadStateDict(state));
  state[0].tensor = StateTensor(values, {4, 12});
  ExpectRefused(ErrorCode::kShape, "in_proj_weight has shape [4, 12]; expected [12, 4]",
                [&] { layer.LoadStateDict(state); });
  state[0].name = "in_proj";
  ExpectRefused(ErrorCode::kOption, "in_proj_weight is missing",
                [&] { layer.LoadStateDict(state); });
  state[0] = {"in_proj_weight", StateTensor(values, {12, 4})};
  state.push_back({"bias_k", StateTensor(values, {1, 1, 4})});
  ExpectRefused(ErrorCode::kOption, "bias_k is not a weight of this layer",
                [&] { layer.LoadStateDict(state); });
  ExpectRefused(ErrorCode::kRange, "embed_dim = 5",
                [] { MultiHeadAttention({.embed_dim = 5, .num_heads = 2}); });
  ExpectRefused(ErrorCode::kRange, "multiple of num_kv_heads",
                [] { MultiHeadAttention({.embed_dim = 12, .num_heads = 4, .num_kv_heads = 3}); });
}

}  // namespace
}  // namespace heed::testing
