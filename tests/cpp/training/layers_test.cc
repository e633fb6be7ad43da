// Gradients of layers against finite differences of plain float64 loops, on every SIMD target.
#include "heed/training/layers.h"

#include <string>

#include "gtest/gtest.h"
#include "heed/error.h"
#include "simd_targets.h"
#include "training/plain.h"

namespace heed::testing {
namespace {

using training::EmbeddingLayer;
using training::FeedForward;
using training::FeedForwardOptions;
using training::LinearLayer;
using training::Matrix;
using training::NormLayer;
using training::NormLayerOptions;
using training::ParameterSet;

constexpr double kBound = 2e-5;

class TrainingLayers : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(TrainingLayers);

// Runs a layer both ways and compares outputs, the gradient of x and those of the parameters.
template <class Layer, class PlainLayer>
void ExpectMatches(ParameterSet& parameters, Layer& layer, const Matrix& x,
                   const PlainLayer& plain) {
  Scramble(parameters, 3, 0.3);
  parameters.ZeroGradients();
  const Plain expected = plain(ToTensors(parameters), ToPlain(x));
  const Matrix y = layer.Forward(x);
  ASSERT_EQ(y.size(), static_cast<int64_t>(expected.values.size()));
  for (int64_t n = 0; n < y.size(); ++n) {
    ASSERT_NEAR(double(y.data()[n]), expected.values[static_cast<size_t>(n)], 1e-5) << n;
  }
  const Matrix cotangent = RandomMatrix(y.rows(), y.dim(), 9);
  const Matrix d_x = layer.Backward(cotangent);
  Tensors at = ToTensors(parameters);
  at["x"] = ToPlain(x).values;
  const auto value = [&](const Tensors& t) {
    return Dot(plain(t, {x.dim(), t.at("x")}), cotangent);
  };
  ExpectGradient(value, at, "x", d_x.data(), kBound);
  ExpectGradients(value, at, parameters, kBound);
}

TEST_P(TrainingLayers, LinearMatchesFiniteDifferences) {
  for (const int64_t rows : {1, 5, 97}) {
    ParameterSet parameters(1);
    LinearLayer layer(parameters, "map", {.in_dim = 5, .out_dim = 7, .bias = true});
    ExpectMatches(parameters, layer, RandomMatrix(rows, 5, 2),
                  [](const Tensors& t, const Plain& x) { return PlainLinear(t, "map", x); });
  }
}

TEST_P(TrainingLayers, NormsMatchFiniteDifferences) {
  for (const Norm norm : {Norm::kLayer, Norm::kRms}) {
    for (const int64_t groups : {1, 3}) {
      ParameterSet parameters(1);
      NormLayer layer(parameters, "norm", {.dim = 5, .norm = norm});
      ExpectMatches(
          parameters, layer, RandomMatrix(7, groups * 5, 2),
          [&](const Tensors& t, const Plain& x) { return PlainNorm(t, "norm", norm, x); });
    }
  }
}

TEST_P(TrainingLayers, FeedForwardMatchesFiniteDifferences) {
  for (const Activation activation :
       {Activation::kGelu, Activation::kGeluTanh, Activation::kSilu, Activation::kRelu}) {
    for (const bool gated : {false, true}) {
      SCOPED_TRACE(std::to_string(int(activation)) + (gated ? " gated" : ""));
      const FeedForwardOptions options = {
          .embed_dim = 3, .ff_dim = 11, .activation = activation, .gated = gated, .bias = true};
      ParameterSet parameters(1);
      FeedForward layer(parameters, "mlp", options);
      ExpectMatches(
          parameters, layer, RandomMatrix(9, 3, 4),
          [&](const Tensors& t, const Plain& x) { return PlainFeedForward(t, "mlp", options, x); });
    }
  }
}

TEST(EmbeddingLayer, AddsTheGradientsOfEqualIds) {
  ParameterSet parameters(1);
  EmbeddingLayer layer(parameters, "tokens", 4, 3, 1);
  const std::vector<int32_t> ids = {2, 0, 2};
  const Matrix y = layer.Forward(ids);
  const std::vector<float>& table = parameters.Find("tokens.weight")->value;
  for (int64_t c = 0; c < 3; ++c) EXPECT_EQ(y.Row(2)[c], table[static_cast<size_t>(6 + c)]);
  Matrix d_y(3, 3);
  for (int64_t n = 0; n < 9; ++n) d_y.data()[n] = static_cast<float>(n + 1);
  layer.Backward(d_y);
  EXPECT_EQ(parameters.Find("tokens.weight")->gradient,
            (std::vector<float>{4, 5, 6, 0, 0, 0, 8, 10, 12, 0, 0, 0}));
}

TEST(EmbeddingLayer, RefusesIdsOutsideTheTable) {
  ParameterSet parameters(1);
  EmbeddingLayer layer(parameters, "tokens", 4, 3, 1);
  for (const int32_t id : {-1, 4}) {
    const std::vector<int32_t> ids = {0, id};
    EXPECT_THROW(layer.Forward(ids), Error) << id;
  }
}

TEST(LinearLayer, AddsToTheGradientsOfASharedWeight) {
  ParameterSet parameters(1);
  LinearLayer first(parameters, "map", {.in_dim = 2, .out_dim = 2});
  LinearLayer second(*parameters.Find("map.weight"));
  const Matrix x = RandomMatrix(3, 2, 1), d_y = RandomMatrix(3, 2, 2);
  first.Forward(x);
  first.Backward(d_y);
  const std::vector<float> once = parameters.Find("map.weight")->gradient;
  second.Forward(x);
  second.Backward(d_y);
  for (size_t n = 0; n < once.size(); ++n) {
    EXPECT_EQ(parameters.Find("map.weight")->gradient[n], 2 * once[n]);
  }
}

TEST(EmbeddingLayer, RefusesToGoBackBeforeItWentForward) {
  ParameterSet parameters(1);
  EmbeddingLayer layer(parameters, "tokens", 4, 3, 1);
  try {
    layer.Backward(Matrix(0, 0));
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOption) << error.what();
  }
}

TEST(LinearLayer, RefusesWhatDoesNotFit) {
  ParameterSet parameters(1);
  LinearLayer layer(parameters, "map", {.in_dim = 2, .out_dim = 3});
  EXPECT_THROW(layer.Backward(Matrix(1, 3)), Error);
  EXPECT_THROW(layer.Forward(Matrix(1, 3)), Error);
  const Matrix x(1, 2);
  layer.Forward(x);
  EXPECT_THROW(layer.Backward(Matrix(1, 2)), Error);
  EXPECT_THROW(LinearLayer(parameters, "map", {.in_dim = 2, .out_dim = 3}), Error);
  EXPECT_THROW(LinearLayer(parameters, "other", {.in_dim = 0, .out_dim = 3}), Error);
}

TEST(ParameterSet, DrawsDependOnSeedAndNameAlone) {
  const training::Initial normal = {.deviation = 2};
  ParameterSet one(7), two(7), other(8);
  one.Add("a", {5, 3}, normal);
  two.Add("first", {2}, normal);
  two.Add("a", {5, 3}, normal);
  other.Add("a", {5, 3}, normal);
  EXPECT_EQ(one.Find("a")->value, two.Find("a")->value);
  EXPECT_NE(one.Find("a")->value, other.Find("a")->value);
  EXPECT_NE(one.Find("a")->value[0], two.Find("first")->value[0]);
}

TEST(ParameterSet, DrawsHaveTheirMomentsAndPrefixes) {
  ParameterSet parameters(7);
  const std::vector<float>& many = parameters.Add("a", {40000}, {3, 2}).value;
  double sum = 0, squares = 0;
  for (const float x : many) {
    sum += double(x);
    squares += (double(x) - 3) * (double(x) - 3);
  }
  EXPECT_NEAR(sum / 40000, 3, 0.04);
  EXPECT_NEAR(squares / 40000, 4, 0.12);
  ParameterSet shorter(7);
  const std::vector<float>& few = shorter.Add("a", {5}, {3, 2}).value;
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
}

}  // namespace
}  // namespace heed::testing
