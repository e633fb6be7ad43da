// Gradients of transformer blocks, classifiers and latent attention against central differences of
// the float64 oracle.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backward_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "layer_case.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class BlockGradient : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(BlockGradient);

struct Sizes {
  int64_t batch = 2, len = 4, dim = 6, heads = 4, kv_heads = 2, head_dim = 3, head_dim_v = 2;
};

using Shapes = std::vector<std::pair<const char*, std::vector<int64_t>>>;

// Matrices whose products keep unit variance, everything else ~ N(0, 1).
LayerCase MakeCase(const std::string& id, const Sizes& s, const Shapes& shapes) {
  LayerCase c = {id, {.batch = s.batch, .q_len = s.len, .kv_len = s.len}, {}, {}, {}, {}};
  Random random(1);
  for (const auto& [name, shape] : shapes) {
    const bool output = std::string(name) == "w_o";
    int64_t fan_in = name[0] == 'w' ? shape.back() : 1;
    if (output) fan_in *= s.heads;
    c.tensors[name] = DrawFloats(random, shape, 1 / std::sqrt(static_cast<double>(fan_in)));
  }
  return c;
}

Shapes HeadShapes(const Sizes& s) {
  return {{"w_q", {s.heads, s.head_dim, s.dim}},
          {"w_k", {s.kv_heads, s.head_dim, s.dim}},
          {"w_v", {s.kv_heads, s.head_dim_v, s.dim}},
          {"w_o", {s.dim, s.heads, s.head_dim_v}}};
}

void Add(LayerCase& c, const Shapes& shapes) {
  Random random(2);
  for (const auto& [name, shape] : shapes) c.tensors[name] = DrawFloats(random, shape, 1);
}

LayerCase MakeBlock(const Sizes& s = {}) {
  Shapes shapes = HeadShapes(s);
  shapes.push_back({"x", {s.batch, s.len, s.dim}});
  shapes.push_back({"w_up", {5, s.dim}});
  shapes.push_back({"w_down", {s.dim, 5}});
  return MakeCase("transformer_block", s, shapes);
}

void AddToBlock(LayerCase& c, const Sizes& s = {}) {
  Add(c, {{"b_q", {s.heads, s.head_dim}},
          {"b_k", {s.kv_heads, s.head_dim}},
          {"b_v", {s.kv_heads, s.head_dim_v}},
          {"b_o", {s.dim}},
          {"b_up", {5}},
          {"b_down", {s.dim}},
          {"b_gate", {5}},
          {"w_gate", {5, s.dim}},
          {"norm1_weight", {s.dim}},
          {"norm1_bias", {s.dim}},
          {"norm2_weight", {s.dim}},
          {"norm2_bias", {s.dim}},
          {"head_mask", {s.heads}},
          {"sinks", {s.heads}},
          {"bias", {s.len, s.len}}});
}

void ExpectElements(const RequestBuilder& builder, const std::string& what) {
  ExpectElementsMatch(builder.request(), kLayerGradientMaxError, what);
}

TEST_P(BlockGradient, BlocksMatchDifferencesOfReference) {
  for (const char* norm : {"layer", "rms"}) {
    for (const char* order : {"pre", "post"}) {
      for (const char* activation : {"gelu", "gelu_tanh", "silu", "relu"}) {
        const std::string what = std::string(norm) + " " + order + " " + activation;
        LayerCase c = MakeBlock();
        c.params = {{"norm", std::string(norm)},
                    {"norm_order", std::string(order)},
                    {"activation", std::string(activation)},
                    {"causal", true}};
        ExpectElements(c.Build(), what);
        AddToBlock(c);
        c.key_lengths = {4, 2};
        c.params["epsilon"] = 0.01;
        ExpectElements(c.Build(), what + ", everything");
      }
    }
  }
}

TEST_P(BlockGradient, BlocksMatchAlongDirections) {
  const Sizes s = {.batch = 1, .len = 129, .dim = 40, .heads = 4, .kv_heads = 1, .head_dim = 10};
  for (const char* order : {"pre", "post"}) {
    LayerCase c = MakeBlock(s);
    AddToBlock(c, s);
    c.tensors.erase("bias");
    c.params = {{"norm_order", std::string(order)}};
    ExpectDirectionsMatch(c.Build().request(), kLayerGradientMaxError, order);
  }
}

struct Classifier {
  Sizes sizes;
  LayerCase layer;
  std::vector<int32_t> tokens;

  explicit Classifier(const std::string& pooling, const Sizes& s = {}) : sizes(s) {
    Shapes shapes = HeadShapes(s);
    shapes.push_back({"w_class", {3, s.dim}});
    layer = MakeCase("attention_classifier", s, shapes);
    Add(layer, {{"embedding", {7, s.dim}}});
    layer.params["pooling"] = pooling;
    if (pooling == "attention")
      layer.tensors["pool_query"] = {{s.dim}, std::vector<float>(6, 0.3f)};
    Random random(3);
    for (int64_t n = 0; n < s.batch * s.len; ++n) {
      tokens.push_back(static_cast<int32_t>(random.Integer(0, 6)));
    }
  }
  RequestBuilder Build() const {
    RequestBuilder builder = layer.Build();
    builder.Integers("tokens", {sizes.batch, sizes.len}, tokens);
    return builder;
  }
};

TEST_P(BlockGradient, ClassifiersMatchDifferencesOfReference) {
  for (const char* pooling : {"mean", "first", "max", "attention"}) {
    Classifier c(pooling, {.batch = 3, .len = 5});
    ExpectElements(c.Build(), pooling);
    Add(c.layer, {{"position_table", {8, 6}}, {"b_class", {3}}, {"b_o", {6}}, {"sinks", {4}}});
    c.layer.key_lengths = {5, 0, 2};
    c.layer.params["causal"] = true;
    c.layer.params["add_zero_attn"] = true;
    ExpectElements(c.Build(), std::string(pooling) + ", lengths");
    ExpectElements(Classifier(pooling, {.batch = 2, .len = 0}).Build(),
                   std::string(pooling) + ", no tokens");
  }
}

TEST_P(BlockGradient, TokensBeyondTheirLengthReachNothing) {
  Classifier c("mean", {.batch = 2, .len = 3});
  c.layer.key_lengths = {3, 0};
  c.tokens = {1, 2, 1, 4, 4, 4};
  std::vector<float>& embedding = c.layer.tensors["embedding"].values;
  std::fill(embedding.begin() + 4 * 6, embedding.begin() + 5 * 6, kNan);
  Backward backward(c.Build().request());
  backward.d_results.values(0)[4] = kNan;  // at the empty sequence
  backward.Run(c.Build().request());
  for (const auto& [name, gradient] : backward.gradients.ByName()) {
    for (const double x : gradient) EXPECT_TRUE(std::isfinite(x)) << name;
  }
  const std::vector<double> d_embedding = backward.gradients.ByName().at("embedding");
  for (size_t n = 0; n < d_embedding.size(); ++n) {
    const bool read = n / 6 == 1 || n / 6 == 2;
    EXPECT_EQ(d_embedding[n] != 0, read) << n;
  }
}

LayerCase MakeLatent(const Sizes& s = {}) {
  return MakeCase("multi_head_latent", s,
                  {{"x", {s.batch, s.len, s.dim}},
                   {"w_dq", {5, s.dim}},
                   {"w_uq", {s.heads, 3, 5}},
                   {"w_qr", {s.heads, 2, 5}},
                   {"w_dkv", {4, s.dim}},
                   {"w_kr", {2, s.dim}},
                   {"w_uk", {s.heads, 3, 4}},
                   {"w_uv", {s.heads, s.head_dim_v, 4}},
                   {"w_o", {s.dim, s.heads, s.head_dim_v}}});
}

TEST_P(BlockGradient, LatentAttentionMatchesDifferencesOfReference) {
  for (const char* form : {"naive", "absorbed"}) {
    for (const char* rope : {"none", "half", "interleaved"}) {
      LayerCase c = MakeLatent();
      c.params = {{"form", std::string(form)}, {"rope", std::string(rope)}, {"return_lse", true}};
      ExpectElements(c.Build(), std::string(form) + " " + rope);
      Add(c,
          {{"norm_q_weight", {5}}, {"norm_kv_weight", {4}}, {"alibi_slopes", {4}}, {"sinks", {4}}});
      c.key_lengths = {4, 0};
      c.params["causal"] = true;
      c.params["softcap"] = 3.0;
      c.params["rope_base"] = 100.0;
      ExpectElements(c.Build(), std::string(form) + " " + rope + ", everything");
    }
  }
}

// YaRN multiplies what it rotates: the way back has the factor once more, not its inverse.
TEST_P(BlockGradient, StretchedLatentAttentionMatchesDifferencesOfReference) {
  LayerCase c = MakeLatent();
  c.params = {{"rope", std::string("half")}, {"scaling", std::string("yarn")}};
  c.params["scaling_factor"] = 4.0;
  c.params["original_len"] = 8.0;
  c.params["attention_factor"] = 1.5;
  c.params["rope_base"] = 100.0;
  ExpectElements(c.Build(), "yarn");
  const Sizes s;
  Add(c, {{"w_uq", {s.heads, 3, s.dim}}, {"w_qr", {s.heads, 2, s.dim}}});
  c.tensors.erase("w_dq");
  ExpectElements(c.Build(), "yarn, queries from x");
}

TEST_P(BlockGradient, LatentAttentionMatchesAlongDirections) {
  const LayerCase c = MakeLatent({.batch = 1, .len = 200, .dim = 30});
  ExpectDirectionsMatch(c.Build().request(), kLayerGradientMaxError, "latent");
}

TEST_P(BlockGradient, SameBitsForAnyNumberOfThreads) {
  const Sizes s = {.batch = 2, .len = 100, .dim = 24};
  LayerCase block = MakeBlock(s);
  AddToBlock(block, s);
  ExpectSameGradientsForAnyThreads(block.Build().request(), "block");
  ExpectSameGradientsForAnyThreads(Classifier("mean", {.batch = 3, .len = 90}).Build().request(),
                                   "classifier");
  LayerCase latent = MakeLatent(s);
  Add(latent, {{"norm_q_weight", {5}}, {"norm_kv_weight", {4}}});
  ExpectSameGradientsForAnyThreads(latent.Build().request(), "latent");
}

}  // namespace
}  // namespace heed::testing
