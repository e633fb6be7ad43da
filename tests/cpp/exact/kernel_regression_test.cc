// Nadaraya-Watson regression: hand-computed numbers, every kernel, and its limits.
#include <cmath>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "request_builder.h"
#include "simd_targets.h"

namespace heed::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

constexpr Kernel kKernels[] = {Kernel::kGaussian, Kernel::kBoxcar, Kernel::kTriangular,
                               Kernel::kEpanechnikov, Kernel::kConstant};

class KernelRegression : public OnEveryTarget {};
HEED_ON_EVERY_TARGET(KernelRegression);

AttentionCase Small(Kernel kernel, int64_t head_dim = 3) {
  AttentionCase c = MakeCase({.batch = 2,
                              .num_heads = 4,
                              .num_kv_heads = 2,
                              .q_len = 33,
                              .kv_len = 150,
                              .head_dim = head_dim,
                              .head_dim_v = 9});
  c.scalars.score = Score::kSquaredDistance;
  c.scalars.normalize = Normalize::kKernelSum;
  c.scalars.kernel = kernel;
  // Multiples of 1/8: squared distances are exact in float32, so that a key at the very edge of a
  // kernel is on the same side in float64.
  for (Buffer<float>* buffer : {&c.q, &c.k}) {
    buffer->ForEach(
        [](int64_t, int64_t, int64_t, int64_t, float& x) { x = std::round(8 * x) / 8; });
  }
  return c;
}

// One query at 0 and keys on a line.
RequestBuilder OnALine(const std::string& kernel) {
  RequestBuilder builder("kernel_regression");
  builder.Floats("q", {1, 1, 1, 1}, {0})
      .Floats("k", {1, 1, 4, 1}, {-1, 0.5, 1, 3})
      .Floats("v", {1, 1, 4, 1}, {10, 20, 40, 80})
      .Param("kernel", kernel)
      .Param("width", 2.0)
      .Param("return_weights", true);
  return builder;
}

void ExpectWeights(const std::string& kernel, const std::vector<double>& expected) {
  const Values values = RunByName(OnALine(kernel).request());
  EXPECT_THAT(values.at("weights"), Pointwise(DoubleNear(1e-7), expected)) << kernel;
  const double v[] = {10, 20, 40, 80};
  double mean = 0;
  for (size_t j = 0; j < 4; ++j) mean += expected[j] * v[j];
  EXPECT_NEAR(values.at("output")[0], mean, 1e-5) << kernel;
}

TEST_P(KernelRegression, GivesHandComputedWeightsOnALine) {
  // u = 0.5, 0.25, 0.5, 1.5
  ExpectWeights("boxcar", {1 / 3.0, 1 / 3.0, 1 / 3.0, 0});
  ExpectWeights("triangular", {0.5 / 1.75, 0.75 / 1.75, 0.5 / 1.75, 0});
  ExpectWeights("epanechnikov", {0.75 / 2.4375, 0.9375 / 2.4375, 0.75 / 2.4375, 0});
  ExpectWeights("constant", {0.25, 0.25, 0.25, 0.25});
  const double a = std::exp(-0.125), b = std::exp(-0.03125), c = std::exp(-1.125);
  const double sum = 2 * a + b + c;
  ExpectWeights("gaussian", {a / sum, b / sum, a / sum, c / sum});
}

TEST_P(KernelRegression, EdgeOfTheBoxcarBelongsToIt) {
  RequestBuilder builder("kernel_regression");
  builder.Floats("q", {1, 1, 1, 1}, {0})
      .Floats("k", {1, 1, 3, 1}, {-2, 2, 2.0000002f})
      .Floats("v", {1, 1, 3, 1}, {1, 3, 100})
      .Param("kernel", "boxcar")
      .Param("width", 2.0);
  EXPECT_THAT(RunByName(builder.request()).at("output"), ElementsAre(2));
}

TEST_P(KernelRegression, EdgeOfTheBoxcarBelongsToItForEveryWidth) {
  for (const float width : {0.1f, 0.3f, 0.7f, 1.9f, 3.0f, 5.0f, 7.0f, 11.0f, 1e-30f, 1e15f}) {
    RequestBuilder builder("kernel_regression");
    builder.Floats("q", {1, 1, 1, 1}, {0})
        .Floats("k", {1, 1, 3, 1}, {-width, width, 1.00001f * width})
        .Floats("v", {1, 1, 3, 1}, {1, 3, 100})
        .Param("kernel", "boxcar")
        .Param("width", static_cast<double>(width));
    EXPECT_THAT(RunByName(builder.request()).at("output"), ElementsAre(2)) << width;
  }
}

TEST_P(KernelRegression, EveryKernelMatchesReferenceWithOneWidth) {
  for (const Kernel kernel : kKernels) {
    for (const float width : {0.5f, 1.0f, 2.0f, 8.0f}) {
      AttentionCase c = Small(kernel);
      c.width = {width};
      ExpectMatchesReference(c);
    }
  }
}

TEST_P(KernelRegression, EveryKernelMatchesReferenceWithAWidthPerDimension) {
  for (const Kernel kernel : kKernels) {
    AttentionCase c = Small(kernel);
    c.width = {0.5f, 2.0f, 8.0f};
    ExpectMatchesReference(c);
  }
}

TEST_P(KernelRegression, WidthParameterEqualsWidthInput) {
  AttentionCase c = Small(Kernel::kTriangular);
  c.width = {0.5f, 2.0f, 4.0f};
  const Values input = RunByName(c.request());
  c.width = {};
  Request request = c.request();
  request.params.push_back({"width", std::vector<double>{0.5, 2.0, 4.0}});
  EXPECT_EQ(input, RunByName(request));
}

TEST_P(KernelRegression, ManyDimensionsMatchReference) {
  for (const Kernel kernel : {Kernel::kGaussian, Kernel::kTriangular, Kernel::kConstant}) {
    for (const int64_t dim : {1, 17, 64}) {
      AttentionCase c = Small(kernel, dim);
      c.width = {16.0f};
      ExpectMatchesReference(c);
    }
  }
}

TEST_P(KernelRegression, RowsWithoutMassAreEmpty) {
  AttentionCase c = Small(Kernel::kTriangular);
  c.q(0, 1, 5, 0) = 1000;
  ExpectMatchesReference(c);
  const Results r = RunAttention(c, {.lse = false, .weights = true});
  for (int64_t d = 0; d < 9; ++d) EXPECT_EQ(r.output(0, 1, 5, d), 0.0f);
  for (int64_t j = 0; j < 150; ++j) EXPECT_EQ(r.weights(0, 1, 5, j), 0.0f);
}

TEST_P(KernelRegression, FarGaussianKeysDoNotUnderflow) {
  AttentionCase c = Small(Kernel::kGaussian);
  c.q(0, 1, 5, 0) = 1000;
  ExpectMatchesReference(c);
  EXPECT_NE(RunAttention(c).output(0, 1, 5, 0), 0.0f);
}

TEST_P(KernelRegression, NearKeysFarFromTheOriginKeepTheirDistances) {
  // |q|^2 + |k|^2 - 2 q.k would lose these distances in float32.
  AttentionCase c = Small(Kernel::kGaussian);
  for (Buffer<float>* buffer : {&c.q, &c.k}) {
    buffer->ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x += 100000; });
  }
  ExpectMatchesReference(c);
  c.width = {0.7f};
  ExpectMatchesReference(c);
  c.width.clear();
  for (int64_t t = 0; t < c.q.view().shape[3]; ++t) {
    c.width.push_back(0.7f + 0.1f * static_cast<float>(t));
  }
  ExpectMatchesReference(c);
}

TEST_P(KernelRegression, ReducesToAverageWithTheConstantKernel) {
  const AttentionCase c = Small(Kernel::kConstant);
  const Results r = RunAttention(c, {.lse = false});
  for (int64_t d = 0; d < 9; ++d) {
    double mean = 0;
    for (int64_t j = 0; j < 150; ++j) mean += c.v(1, 0, j, d) / 150.0;
    EXPECT_NEAR(r.output(1, 1, 7, d), mean, 1e-6);
  }
}

TEST_P(KernelRegression, ReducesToScaledDotProductForKeysOfOneLength) {
  // -|q - k|^2 / (2 w^2) = q.k / w^2 plus what all keys of a row share.
  AttentionCase c = Small(Kernel::kGaussian, 16);
  c.k.ForEach([](int64_t, int64_t, int64_t, int64_t, float& x) { x = x < 0 ? -0.5f : 0.5f; });
  c.width = {2.0f};
  const Results distance = RunAttention(c);
  c.width = {};
  c.scalars.score = Score::kDot;
  c.scalars.normalize = Normalize::kSoftmax;
  c.scalars.scale = 0.25;
  const Results dot = RunAttention(c);
  const std::vector<float> elements = dot.output.Elements();
  const std::vector<double> expected(elements.begin(), elements.end());
  ExpectWithin(distance.output.Elements(), expected,
               std::vector<double>(expected.size(), 2 * 5 * kAttentionMaxError), "output");
}

TEST_P(KernelRegression, DistanceScoresTakeEveryModifier) {
  // The oracle has the distance with softmax under another name: scale 0 and the distance as bias.
  AttentionCase c = Small(Kernel::kGaussian, 8);
  Random random(4);
  c.scalars.normalize = Normalize::kSoftmax;
  c.scalars.scale = 0.5;
  c.scalars.causal = true;
  c.scalars.query_offset = QueryOffset::At(60);
  c.width = {2.0f};
  c.alibi_slopes = AlibiSlopes(4);
  c.sinks = {0, 1, -1, 0.5f};
  c.bias = MakeBias({2, 4, 33, 150}, random, 0.1);
  const Results r = RunAttention(c, {.weights = true});

  std::vector<double> logits;
  c.bias.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t j, float& bias) {
    double u2 = 0;
    for (int64_t d = 0; d < 8; ++d) {
      const double difference = (c.q(b, h, i, d) - c.k(b, h / 2, j, d)) / 2.0;
      u2 += difference * difference;
    }
    logits.push_back(-0.25 * u2 + bias);
  });
  AttentionCase same = c;
  same.bias = {};
  same.width = {};
  same.scalars.score = Score::kDot;
  same.scalars.scale = 0.0;
  Request request = same.request();
  request.inputs.push_back(
      {"bias",
       {DType::kFloat64, logits.data(), 4, c.bias.shape(), {4 * 33 * 150, 33 * 150, 150, 1}}});
  request.params.push_back({"return_weights", true});
  const Values expected = RunOracle(request);
  ExpectWithin(r.output.Elements(), expected.at("output"),
               std::vector<double>(expected.at("output").size(), 5 * kAttentionMaxError), "output");
  ExpectWithin(r.weights.Elements(), expected.at("weights"),
               std::vector<double>(expected.at("weights").size(), kAttentionMaxError), "weights");
}

}  // namespace
}  // namespace heed::testing
