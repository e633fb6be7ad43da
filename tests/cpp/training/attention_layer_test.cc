// The attention layer around mechanisms of both families, against finite differences of the oracle.
#include "heed/training/attention_layer.h"

#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/registry.h"
#include "training/plain.h"

namespace heed::testing {
namespace {

using ::testing::HasSubstr;
using training::AttentionLayer;
using training::AttentionLayerOptions;
using training::HeadPosition;
using training::Matrix;
using training::ParameterSet;
using training::SequenceShape;

constexpr double kBound = 1e-4;

AttentionLayerOptions Options(const std::string& mechanism, std::vector<NamedParam> params = {}) {
  return {.embed_dim = 12,
          .num_heads = 2,
          .mechanism = mechanism,
          .params = std::move(params),
          .causal = true};
}

// Compares outputs and all gradients; the context is x where `kv_len` is 0.
void ExpectMatches(const AttentionLayerOptions& options, int64_t q_len, int64_t kv_len) {
  SCOPED_TRACE(options.mechanism);
  ParameterSet parameters(5);
  AttentionLayer layer(parameters, "attn", options);
  Scramble(parameters, 6, 0.2);
  const bool self = kv_len == 0;
  const SequenceShape shape = {2, q_len, self ? q_len : kv_len};
  const Matrix x = RandomMatrix(2 * q_len, 12, 7);
  const Matrix other = RandomMatrix(2 * shape.kv_len, 12, 8);
  const Matrix& context = self ? x : other;
  const Matrix y = layer.Forward(x, context, shape);
  const Matrix cotangent = RandomMatrix(y.rows(), y.dim(), 9);
  parameters.ZeroGradients();
  const Matrix d_x = layer.Backward(cotangent);
  Tensors at = ToTensors(parameters);
  at["x"] = ToPlain(x).values;
  at["context"] = ToPlain(context).values;
  const auto plain = [&](const Tensors& t) {
    const Plain rows = {12, t.at("x")}, keys = {12, t.at(self ? "x" : "context")};
    return PlainAttention(t, "attn", options, rows, keys, shape);
  };
  const Plain expected = plain(at);
  for (int64_t n = 0; n < y.size(); ++n) {
    ASSERT_NEAR(double(y.data()[n]), expected.values[static_cast<size_t>(n)], 3e-5) << n;
  }
  const auto value = [&](const Tensors& t) { return Dot(plain(t), cotangent); };
  ExpectGradient(value, at, "x", d_x.data(), kBound);
  if (!self) ExpectGradient(value, at, "context", layer.context_gradient().data(), kBound);
  ExpectGradients(value, at, parameters, kBound);
}

TEST(AttentionLayer, ExactMechanismsMatchFiniteDifferences) {
  for (const char* id :
       {"scaled_dot_product", "sigmoid", "relu_squared", "softmax1", "sink", "luong_general",
        "cosine", "gaussian", "forgetting", "sparsemax", "entmax15", "stick_breaking"}) {
    ExpectMatches(Options(id), 5, 0);
  }
  ExpectMatches(Options("scaled_dot_product", {{"window_left", 2.0}}), 7, 0);
}

TEST(AttentionLayer, RecurrentMechanismsMatchFiniteDifferences) {
  for (const char* id :
       {"linear", "retention", "gated_linear", "mamba2", "delta_rule", "gated_delta_rule",
        "kimi_delta", "rwkv6", "lightning", "hgrn2", "based", "performer"}) {
    ExpectMatches(Options(id), 5, 0);
  }
}

TEST(AttentionLayer, LowRankMechanismsMatchFiniteDifferences) {
  for (const char* id : {"efficient", "nystrom", "memory_compressed"}) {
    AttentionLayerOptions options = Options(id);
    options.causal = false;
    ExpectMatches(options, 7, 0);
  }
  ExpectMatches(Options("memory_compressed"), 7, 0);
}

TEST(AttentionLayer, SelectiveMechanismsMatchFiniteDifferences) {
  for (const char* id :
       {"streaming", "block_mixture", "quest", "heavy_hitter", "reformer", "sinkhorn"}) {
    ExpectMatches(Options(id), 5, 0);
  }
  ExpectMatches(Options("routing", {{"num_clusters", 2.0}}), 5, 0);
}

TEST(AttentionLayer, PositionsAndGroupsMatchFiniteDifferences) {
  AttentionLayerOptions options = Options("scaled_dot_product");
  options.num_heads = 3;
  options.num_kv_heads = 1;
  options.position = HeadPosition::kRope;
  ExpectMatches(options, 7, 0);
  options.position = HeadPosition::kAlibi;
  ExpectMatches(options, 7, 0);
  options = Options("retention");
  options.position = HeadPosition::kRope;
  ExpectMatches(options, 6, 0);
}

TEST(AttentionLayer, AnotherContextMatchesFiniteDifferences) {
  for (const char* id : {"scaled_dot_product", "sigmoid", "linear"}) {
    AttentionLayerOptions options = Options(id);
    options.causal = false;
    ExpectMatches(options, 3, 7);
  }
}

// Every row with a gradient is either trained here or refused by name.
TEST(AttentionLayer, TakesOrRefusesEveryMechanism) {
  std::vector<std::string_view> taken;
  const auto takes = [](std::string_view id, bool causal) {
    ParameterSet parameters(1);
    AttentionLayerOptions options = Options(std::string(id));
    options.causal = causal;
    try {
      AttentionLayer layer(parameters, "attn", options);
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << id;
      EXPECT_THAT(error.what(), HasSubstr(id));
      return false;
    }
  };
  for (const Mechanism& row : Mechanisms()) {
    const bool causal = takes(row.id, true);
    // What holds all tokens of its context is never causal.
    if (causal) {
      EXPECT_THAT(row.capabilities, HasSubstr("causal")) << row.id;
    }
    if (causal || takes(row.id, false)) taken.push_back(row.id);
  }
  EXPECT_GE(taken.size(), 30u);
  EXPECT_EQ(taken, training::TrainableMechanisms());
}

// Whatever becomes of the parameters since.
TEST(AttentionLayer, WeightsAreThoseOfTheLastForward) {
  ParameterSet parameters(5);
  AttentionLayer layer(parameters, "attn", Options("sink"));
  Scramble(parameters, 3, 0.5);
  const Matrix x = RandomMatrix(6, 12, 7);
  layer.Forward(x, x, {1, 6, 6});
  std::vector<float> before(2 * 6 * 6), after(2 * 6 * 6);
  layer.Weights(Contiguous(before.data(), 1, 2, 6, 6));
  ParameterSet others(5);
  AttentionLayer(others, "attn", Options("sink"));
  Scramble(others, 4, 0.5);
  const std::vector<uint8_t> bytes = training::SaveSafetensors(others);
  training::LoadParameters(training::SafetensorsFile(bytes), parameters);
  layer.Weights(Contiguous(after.data(), 1, 2, 6, 6));
  EXPECT_EQ(before, after);
  layer.Forward(x, x, {1, 6, 6});
  layer.Weights(Contiguous(after.data(), 1, 2, 6, 6));
  EXPECT_NE(before, after);
}

TEST(AttentionLayer, WeightsAreThoseOfSoftmax) {
  ParameterSet parameters(5);
  AttentionLayer layer(parameters, "attn", Options("scaled_dot_product"));
  const Matrix x = RandomMatrix(2 * 6, 12, 7);
  layer.Forward(x, x, {2, 6, 6});
  std::vector<float> weights(2 * 2 * 6 * 6);
  const TensorView<float> view = Contiguous(weights.data(), 2, 2, 6, 6);
  layer.Weights(view);
  for (int64_t i = 0; i < 6; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < 6; ++j) {
      sum += double(view(1, 1, i, j));
      EXPECT_TRUE(j <= i || view(1, 1, i, j) == 0) << i << " sees " << j;
    }
    EXPECT_NEAR(sum, 1, 1e-5);
  }
}

// Times the values they are the heads' outputs: of both heads, of both sequences.
TEST(AttentionLayer, WeightsTimesValuesAreTheOutput) {
  ParameterSet parameters(5);
  AttentionLayer layer(parameters, "attn", Options("scaled_dot_product"));
  std::vector<float>& w_o = parameters.Find("attn.o_proj.weight")->value;
  for (size_t n = 0; n < w_o.size(); ++n) w_o[n] = n % 13 == 0 ? 1 : 0;  // the identity
  const Matrix x = RandomMatrix(2 * 6, 12, 7);
  const Matrix y = layer.Forward(x, x, {2, 6, 6});
  std::vector<float> weights(2 * 2 * 6 * 6);
  const TensorView<float> view = Contiguous(weights.data(), 2, 2, 6, 6);
  layer.Weights(view);
  const Plain v = PlainLinear(ToTensors(parameters), "attn.v_proj", ToPlain(x));
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t i = 0; i < 6; ++i) {
      for (int64_t c = 0; c < 12; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < 6; ++j) sum += double(view(b, c / 6, i, j)) * v(b * 6 + j, c);
        EXPECT_NEAR(double(y.Row(b * 6 + i)[c]), sum, 1e-5) << b << " " << i << " " << c;
      }
    }
  }
}

// The picture of a recurrent mechanism, times its values, is its output.
TEST(AttentionLayer, WeightsOfARecurrentMechanismGiveItsOutput) {
  ParameterSet parameters(5);
  AttentionLayerOptions options = Options("gated_delta_rule");
  options.num_heads = 1;
  AttentionLayer layer(parameters, "attn", options);
  // Output projection and norm are the identity: y is the normed output of the mechanism.
  std::vector<float>& w_o = parameters.Find("attn.o_proj.weight")->value;
  for (size_t n = 0; n < w_o.size(); ++n) w_o[n] = n % 13 == 0 ? 1 : 0;
  const Matrix x = RandomMatrix(9, 12, 7);
  const Matrix y = layer.Forward(x, x, {1, 9, 9});
  std::vector<float> weights(81);
  layer.Weights(Contiguous(weights.data(), 1, 1, 9, 9));
  const Plain v = PlainLinear(ToTensors(parameters), "attn.v_proj", ToPlain(x));
  for (int64_t i = 0; i < 9; ++i) {
    double row[12] = {}, squares = 0;
    for (int64_t c = 0; c < 12; ++c) {
      for (int64_t j = 0; j < 9; ++j) row[c] += double(weights[size_t(i * 9 + j)]) * v(j, c);
      squares += row[c] * row[c] / 12;
    }
    for (int64_t c = 0; c < 12; ++c) {
      EXPECT_NEAR(double(y.Row(i)[c]), row[c] / std::sqrt(squares + 1e-5), 1e-4) << i;
    }
  }
}

void ExpectRefused(const AttentionLayerOptions& options, ErrorCode code, const char* words) {
  ParameterSet parameters(1);
  try {
    AttentionLayer layer(parameters, "attn", options);
    FAIL() << "expected: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(words));
  }
  EXPECT_EQ(parameters.NumElements(), 0) << words;
}

TEST(AttentionLayer, RefusesWhatCannotWork) {
  ExpectRefused(Options("nonsense"), ErrorCode::kOption, "nonsense");
  ExpectRefused(Options("native_sparse"), ErrorCode::kUnsupported, "needs branch_gates");
  AttentionLayerOptions options = Options("retention");
  options.causal = false;
  ExpectRefused(options, ErrorCode::kUnsupported, "causal by nature");
  options.causal = true;
  options.position = HeadPosition::kAlibi;
  ExpectRefused(options, ErrorCode::kUnsupported, "ALiBi");
  options = Options("scaled_dot_product");
  options.num_heads = 5;
  ExpectRefused(options, ErrorCode::kRange, "multiple of num_heads = 5");
  ExpectRefused(Options("sigmoid", {{"causal", true}}), ErrorCode::kOption, "causal");
  ExpectRefused(Options("attention", {{"top_k", 2.0}}), ErrorCode::kOption,
                "top_k is read only by normalize \"top_k\"");
}

// What the first call would refuse, or the first step, whatever the lengths are.
TEST(AttentionLayer, RefusesValuesThatNoCallTakes) {
  const auto refuse = [](const char* mechanism, NamedParam param, ErrorCode code,
                         const char* words) {
    ExpectRefused(Options(mechanism, {std::move(param)}), code, words);
  };
  constexpr ErrorCode kRange = ErrorCode::kRange, kOption = ErrorCode::kOption;
  const std::string open = "foo(", captured = "score*a[h]";
  refuse("scaled_dot_product", {"softcap", 0.0}, kRange, "softcap = 0");
  refuse("scaled_dot_product", {"keep_mod", open}, kOption, "keep_mod");
  refuse("scaled_dot_product", {"score_mod", captured}, kOption, "score_mod");
  refuse("scaled_dot_product", {"dropout_p", 1.0}, kRange, "dropout p = 1");
  refuse("top_k", {"top_k", 0.0}, kRange, "top_k = 0");
  refuse("delta_rule", {"chunk_len", 65.0}, kRange, "chunk_len = 65");
  refuse("cosformer", {"period", 0.0}, kRange, "period = 0");
  refuse("gaussian", {"width", std::vector<double>(5, 1.0)}, ErrorCode::kShape, "width has 5");
  refuse("block_mixture", {"key_block", 0.0}, kRange, "key_block = 0");
  AttentionLayerOptions options = Options("nystrom", {{"iterations", 0.0}});
  options.causal = false;
  ExpectRefused(options, kRange, "iterations = 0");
  // A grid of 6 tokens: it is the window that no length would make right.
  options = Options("neighborhood", {{"grid", std::vector<double>{2, 3}}, {"window_size", 3.0}});
  ExpectRefused(options, kRange, "window_size = 3; it must lie in [1, 2]");
  options = Options("scaled_dot_product");
  options.position = HeadPosition::kRope;
  options.rope_base = 1;
  ExpectRefused(options, kRange, "rope_base = 1");
}

TEST(AttentionLayer, RefusesParametersThatNoLayerReads) {
  const auto refuse = [](const char* mechanism, NamedParam param) {
    ExpectRefused(Options(mechanism, {param}), ErrorCode::kOption, param.name.c_str());
  };
  refuse("scaled_dot_product", {"return_lse", true});
  refuse("scaled_dot_product", {"return_weights", true});
  refuse("scaled_dot_product", {"dropout_seed", 3.0});
  refuse("flash", {"tiles_of_query", 0.0});
  refuse("linear", {"return_state", true});
  refuse("performer", {"return_projection", true});
}

// Parameters that only some lengths fit, of which 12 is one, are no mistake.
TEST(AttentionLayer, TakesParametersThatAskForALength) {
  using List = std::vector<double>;
  const std::vector<std::pair<const char*, std::vector<NamedParam>>> layers = {
      {"neighborhood", {{"grid", List{3, 4}}, {"window_size", List{3, 2}}}},
      {"neighborhood", {{"window_size", 5.0}, {"dilation", 2.0}}},
      {"swin_window", {{"window_size", List{1, 4}}, {"shift", List{0, 3}}}},
      {"swin_window", {{"shift", List{0, 5}}}},
      {"block_sparse", {{"pattern", std::string("axial")}, {"grid", List{2, 3, 2}}}},
      {"longformer", {{"dilation", List{1, 2}}}},
      {"cosformer", {{"period", 64.0}, {"position_offset", List{3, 52}}}},
      {"scaled_dot_product", {{"window_left", 1e9}, {"query_offset", List{7, 0}}}},
      {"nystrom", {{"num_landmarks", 7.0}}}};
  const Matrix x = RandomMatrix(2 * 12, 12, 7);
  for (const auto& [mechanism, params] : layers) {
    SCOPED_TRACE(mechanism);
    ParameterSet parameters(1);
    AttentionLayerOptions options = Options(mechanism, params);
    options.causal = options.mechanism != "nystrom";
    AttentionLayer layer(parameters, "attn", options);
    layer.Forward(x, x, {2, 12, 12});
    layer.Backward(x);
  }
}

}  // namespace
}  // namespace heed::testing
