// The functions of rows by name: ranks, axes and refusals that the typed functions do not know.
#include "heed/operations.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heed/rows.h"
#include "random.h"
#include "reference/rows.h"
#include "request_builder.h"

namespace heed::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

std::vector<float> Numbers(int64_t count) {
  Random random(9);
  std::vector<float> numbers;
  for (int64_t n = 0; n < count; ++n) numbers.push_back(random.Normal());
  return numbers;
}

// Plans and runs an operation; results in order.
std::vector<std::vector<float>> RunNamed(const RequestBuilder& builder,
                                         std::vector<OutputSpec>* planned = nullptr) {
  const std::vector<OutputSpec> specs = PlanOperation(builder.request());
  std::vector<std::vector<float>> results;
  std::vector<NamedTensor> outputs;
  results.reserve(specs.size());
  for (const OutputSpec& spec : specs) {
    AnyTensor tensor;
    tensor.rank = spec.rank;
    tensor.shape = spec.shape;
    int64_t count = 1;
    for (int axis = spec.rank - 1; axis >= 0; --axis) {
      tensor.strides[static_cast<size_t>(axis)] = count;
      count *= spec.shape[static_cast<size_t>(axis)];
    }
    tensor.data = results.emplace_back(static_cast<size_t>(count), std::nanf("")).data();
    outputs.push_back({spec.name, tensor});
  }
  RunOperation(builder.request(), outputs);
  if (planned != nullptr) *planned = specs;
  return results;
}

std::string MessageOf(const RequestBuilder& builder) {
  try {
    PlanOperation(builder.request());
    RunNamed(builder);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(RowOperations, SoftmaxCountsAxesFromTheEndOfAnyRank) {
  const std::vector<float> x = Numbers(24);
  for (const auto& [shape, axis] : std::vector<std::pair<std::vector<int64_t>, double>>{
           {{24}, 0}, {{24}, -1}, {{6, 4}, -2}, {{2, 3, 4}, 1}, {{1, 2, 3, 4}, -2}}) {
    RequestBuilder builder("softmax");
    builder.Floats("x", shape, x).Param("axis", axis);
    const std::vector<float> weights = RunNamed(builder)[0];
    const size_t at =
        static_cast<size_t>(axis < 0 ? axis + static_cast<double>(shape.size()) : axis);
    size_t inner = 1;
    for (size_t n = at + 1; n < shape.size(); ++n) inner *= static_cast<size_t>(shape[n]);
    std::vector<double> row;
    for (int64_t n = 0; n < shape[at]; ++n) row.push_back(x[static_cast<size_t>(n) * inner]);
    const auto expected = reference::SoftmaxOfRow(row, std::vector<bool>(row.size(), true));
    for (size_t n = 0; n < row.size(); ++n) {
      EXPECT_NEAR(weights[n * inner], expected[n], kSoftmaxMaxError);
    }
  }
}

TEST(RowOperations, LogSoftmaxIsItsLogarithm) {
  RequestBuilder weights("softmax"), logs("log_softmax");
  weights.Floats("x", {3, 8}, Numbers(24));
  logs.Floats("x", {3, 8}, Numbers(24));
  const std::vector<float> w = RunNamed(weights)[0], l = RunNamed(logs)[0];
  for (size_t n = 0; n < 24; ++n) EXPECT_NEAR(l[n], std::log(w[n]), 1e-5);
}

TEST(RowOperations, MaskedSoftmaxHasTheBatchInFront) {
  // Equal numbers: weights say how many count.
  const std::vector<float> zeros(12, 0.0f);
  RequestBuilder two("masked_softmax"), three("masked_softmax"), per_row("masked_softmax");
  two.Floats("x", {3, 4}, zeros).Integers("lengths", {3}, {1, 2, 4});
  EXPECT_THAT(RunNamed(two)[0], ElementsAre(1, 0, 0, 0, .5f, .5f, 0, 0, .25f, .25f, .25f, .25f));
  three.Floats("x", {1, 3, 4}, zeros)
      .Integers("lengths", {1}, {2})
      .Bytes("keep", {3, 1}, {1, 0, 1});
  EXPECT_THAT(RunNamed(three)[0], ElementsAre(.5f, .5f, 0, 0, 0, 0, 0, 0, .5f, .5f, 0, 0));
  per_row.Floats("x", {1, 3, 4}, zeros)
      .Integers("lengths", {1, 3}, {0, 2, 4})
      .Bytes("keep", {4}, {0, 1, 1, 1});
  EXPECT_THAT(RunNamed(per_row)[0], ElementsAre(0, 0, 0, 0, 0, 1, 0, 0, 0, FloatEq(1 / 3.f),
                                                FloatEq(1 / 3.f), FloatEq(1 / 3.f)));
}

TEST(RowOperations, LayerNormJoinsAxesAndReturnsStatistics) {
  const std::vector<float> x = Numbers(24), weight = Numbers(12);
  RequestBuilder builder("layer_norm");
  builder.Floats("x", {2, 3, 4}, x)
      .Floats("weight", {3, 4}, weight)
      .Param("axis", 1.0)
      .Param("epsilon", 0.5)
      .Param("return_statistics", true);
  std::vector<OutputSpec> specs;
  const auto results = RunNamed(builder, &specs);
  EXPECT_EQ(specs[1].name, "mean");
  EXPECT_THAT(specs[2].shape, ElementsAre(2, 1, 1, 0));
  const reference::NormedRow expected =
      reference::LayerNormOfRow(std::vector<double>(x.begin() + 12, x.end()), 0.5);
  for (size_t n = 0; n < 12; ++n) {
    EXPECT_NEAR(results[0][12 + n], expected.values[n] * weight[n], 1e-6);
  }
  EXPECT_FLOAT_EQ(results[1][1], static_cast<float>(expected.mean));
  EXPECT_FLOAT_EQ(results[2][1], static_cast<float>(expected.inverse_deviation));
}

TEST(RowOperations, RmsNormHasOneResult) {
  RequestBuilder builder("rms_norm");
  builder.Floats("x", {1, 2}, {3, 4}).Param("epsilon", 1e-12);
  EXPECT_THAT(RunNamed(builder), ElementsAre(ElementsAre(FloatEq(3 / std::sqrt(12.5f)),
                                                         FloatEq(4 / std::sqrt(12.5f)))));
}

TEST(RowOperations, ErrorsNameArgumentValueAndExpectation) {
  const auto with_axis = [](double axis) {
    RequestBuilder builder("softmax");
    builder.Floats("x", {2, 3}, Numbers(6)).Param("axis", axis);
    return MessageOf(builder);
  };
  EXPECT_THAT(with_axis(2), HasSubstr("axis = 2; x has rank 2, expected -2 to 1"));
  EXPECT_THAT(with_axis(-3), HasSubstr("axis = -3"));
  EXPECT_THAT(MessageOf(RequestBuilder("softmax")), HasSubstr("input x is missing"));
  RequestBuilder lengths("masked_softmax"), keep("masked_softmax"), weight("layer_norm"),
      bias("rms_norm");
  lengths.Floats("x", {2, 3}, Numbers(6)).Integers("lengths", {3}, {1, 1, 1});
  EXPECT_THAT(MessageOf(lengths), HasSubstr("[batch] or [batch, rows], here [2, 1]"));
  keep.Floats("x", {2, 3}, Numbers(6)).Bytes("keep", {1, 1, 3}, {1, 1, 1});
  EXPECT_THAT(MessageOf(keep), HasSubstr("keep has rank 3; expected at most that of x, 2"));
  weight.Floats("x", {2, 3}, Numbers(6)).Floats("weight", {2}, {1, 1});
  EXPECT_THAT(MessageOf(weight), HasSubstr("weight must have the extents of x from axis 1 on"));
  bias.Floats("x", {2, 3}, Numbers(6)).Floats("bias", {3}, {1, 1, 1});
  EXPECT_THAT(MessageOf(bias), HasSubstr("bias is unknown to rms_norm"));
}

}  // namespace
}  // namespace heed::testing
