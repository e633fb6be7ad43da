// The oracle against numbers worked out by hand or published elsewhere. Everything else is measured
// against the oracle, so nothing here is.
#include "heed/reference.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "request_builder.h"

namespace heed::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void ExpectNear(const std::vector<double>& actual, const std::vector<double>& expected,
                double error) {
  EXPECT_THAT(actual, Pointwise(DoubleNear(error), expected));
}

// q [1,1,2,1], k = v [1,1,3,1]: the score of row 0 is k itself, that of row 1 is 2 k.
RequestBuilder Line(const std::string& id) {
  RequestBuilder builder(id);
  builder.Doubles("q", {1, 1, 2, 1}, {1, 2})
      .Doubles("k", {1, 1, 3, 1}, {0, 1, 2})
      .Doubles("v", {1, 1, 3, 1}, {10, 20, 40});
  return builder;
}

RequestBuilder Dots() {
  RequestBuilder builder = Line("scaled_dot_product");
  builder.Param("scale", 1.0).Param("return_weights", true).Param("return_lse", true);
  return builder;
}

double WeightedMean(const std::vector<double>& logits, const std::vector<double>& values) {
  double sum = 0, mass = 0;
  for (size_t j = 0; j < logits.size(); ++j) {
    sum += std::exp(logits[j]) * values[j];
    mass += std::exp(logits[j]);
  }
  return sum / mass;
}

ErrorCode CodeOf(const RequestBuilder& builder) {
  try {
    reference::Run(builder.request());
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error was thrown";
  return ErrorCode::kMemory;
}

TEST(Reference, GivesTheWeightsOfTheTextbookExample) {
  RequestBuilder builder("scaled_dot_product");
  builder.Doubles("q", {1, 1, 2, 2}, {1, 0, 0, 1})
      .Doubles("k", {1, 1, 3, 2}, {1, 0, 1, 1, 0, 1})
      .Doubles("v", {1, 1, 3, 2}, {1, 0, 0, 2, 1, 1})
      .Param("return_weights", true);
  const Values values = RunOracle(builder.request());
  const double e = std::exp(1 / std::sqrt(2.0)), a = e / (2 * e + 1), b = 1 / (2 * e + 1);
  ExpectNear(values.at("weights"), {a, a, b, b, a, a}, 1e-15);
  ExpectNear(values.at("weights"), {0.401, 0.401, 0.198, 0.198, 0.401, 0.401}, 5e-4);
  ExpectNear(values.at("output"), {a + b, 2 * a + b, a + b, 3 * a}, 1e-15);
}

TEST(Reference, MatchesTheUnscaledDotAttentionOfKeras) {
  // keras-team/keras, attention_test.py::test_attention_correctness
  RequestBuilder builder("scaled_dot_product");
  builder.Floats("q", {1, 1, 2, 2}, {1, 0, 0, 1})
      .Floats("k", {1, 1, 2, 2}, {0, 1, 1, 0})
      .Floats("v", {1, 1, 2, 2}, {1, 2, 3, 4})
      .Param("scale", 1.0)
      .Param("return_weights", true);
  const Values values = RunOracle(builder.request());
  ExpectNear(values.at("output"), {2.462, 3.462, 1.538, 2.538}, 1e-3);
  ExpectNear(values.at("weights"), {0.269, 0.731, 0.731, 0.269}, 1e-3);
}

TEST(Reference, LseIsTheNaturalLogOfTheDenominator) {
  const Values values = RunOracle(Dots().request());
  const double row0 = std::log(1 + std::exp(1) + std::exp(2));
  ExpectNear(values.at("lse"), {row0, std::log(1 + std::exp(2) + std::exp(4))}, 1e-14);
}

TEST(Reference, CausalStartsAtTheQueryOffset) {
  for (const auto& [offset, seen] :
       std::vector<std::pair<ParamValue, int>>{{0.0, 1}, {std::string("end"), 2}, {7.0, 3}}) {
    RequestBuilder builder = Dots();
    builder.Param("causal", true).Param("query_offset", offset);
    const std::vector<double> output = RunOracle(builder.request()).at("output");
    const std::vector<double> k = {0, 1, 2}, v = {10, 20, 40};
    EXPECT_NEAR(output[0],
                WeightedMean({k.begin(), k.begin() + seen}, {v.begin(), v.begin() + seen}), 1e-13);
  }
}

TEST(Reference, OffsetBelowZeroLeavesTheFirstQueriesEmpty) {
  RequestBuilder builder = Dots();
  builder.Param("causal", true).Param("query_offset", std::vector<double>{-1.0});
  const Values values = RunOracle(builder.request());
  EXPECT_THAT(values.at("output"), ElementsAre(0, 10));
  EXPECT_THAT(values.at("lse"), ElementsAre(-kInf, 0));
  EXPECT_THAT(values.at("weights"), ElementsAre(0, 0, 0, 1, 0, 0));
}

TEST(Reference, WindowCountsNeighboursWithoutItself) {
  RequestBuilder builder = Dots();
  builder.Param("window_left", 0.0).Param("window_right", 0.0).Param("query_offset", 1.0);
  EXPECT_THAT(RunOracle(builder.request()).at("output"), ElementsAre(20, 40));
}

TEST(Reference, OneSidedWindowIsUnlimitedOnTheOther) {
  RequestBuilder builder = Dots();
  builder.Param("window_left", 0.0).Param("query_offset", 1.0);
  ExpectNear(RunOracle(builder.request()).at("output"), {WeightedMean({1, 2}, {20, 40}), 40},
             1e-13);
}

TEST(Reference, KeyLengthsCutRowsAndEndFollowsThem) {
  RequestBuilder per_query = Dots();
  per_query.Integers("key_lengths", {1, 2}, {0, 1});
  EXPECT_THAT(RunOracle(per_query.request()).at("output"), ElementsAre(0, 10));

  RequestBuilder end = Dots();
  end.Integers("key_lengths", {1}, {2}).Param("causal", true).Param("query_offset", "end");
  ExpectNear(RunOracle(end.request()).at("output"), {10, WeightedMean({0, 2}, {10, 20})}, 1e-13);
}

TEST(Reference, EndWithLengthsPerQueryIsUnsupported) {
  RequestBuilder builder = Dots();
  builder.Integers("key_lengths", {1, 2}, {3, 3})
      .Param("causal", true)
      .Param("query_offset", "end");
  EXPECT_EQ(CodeOf(builder), ErrorCode::kUnsupported);
}

TEST(Reference, KeepAndMinusInfinityBiasLeaveKeysOut) {
  RequestBuilder keep = Dots();
  keep.Bytes("keep", {2, 3}, {0, 1, 0, 0, 0, 0});
  EXPECT_THAT(RunOracle(keep.request()).at("output"), ElementsAre(20, 0));

  RequestBuilder bias = Dots();
  bias.Doubles("bias", {1, 1, 1, 3}, {-kInf, -kInf, 5});
  const Values values = RunOracle(bias.request());
  EXPECT_THAT(values.at("output"), ElementsAre(40, 40));
  EXPECT_THAT(values.at("lse"), ElementsAre(7, 9));
}

TEST(Reference, WhatIsNotKeptMayBeAnything) {
  RequestBuilder builder("scaled_dot_product");
  builder.Doubles("q", {1, 1, 1, 1}, {1})
      .Doubles("k", {1, 1, 3, 1}, {1, kNan, kInf})
      .Doubles("v", {1, 1, 3, 1}, {3, kInf, kNan})
      .Doubles("bias", {1, 3}, {0, -kInf, kNan})
      .Bytes("keep", {1, 3}, {1, 1, 0});
  EXPECT_THAT(RunOracle(builder.request()).at("output"), ElementsAre(3));
}

TEST(Reference, VisibleNanReachesItsRowOnly) {
  RequestBuilder builder = Dots();
  builder.Doubles("bias", {2, 3}, {0, kNan, 0, 0, 0, 0});
  const Values values = RunOracle(builder.request());
  EXPECT_TRUE(std::isnan(values.at("output")[0]));
  EXPECT_TRUE(std::isnan(values.at("lse")[0]));
  EXPECT_NEAR(values.at("output")[1], WeightedMean({0, 2, 4}, {10, 20, 40}), 1e-13);
}

TEST(Reference, SoftcapComesBeforeTheBias) {
  RequestBuilder builder = Dots();
  builder.Param("softcap", 1.5)
      .Doubles("bias", {1, 3}, {0, 100, 0})
      .Param("return_scores", "biased");
  const auto cap = [](double s) { return 1.5 * std::tanh(s / 1.5); };
  ExpectNear(RunOracle(builder.request()).at("scores"),
             {0, cap(1) + 100, cap(2), 0, cap(2) + 100, cap(4)}, 1e-13);
}

TEST(Reference, AlibiFallsWithTheDistanceToThePosition) {
  RequestBuilder builder = Dots();
  builder.Doubles("alibi_slopes", {1}, {0.5})
      .Param("query_offset", 1.0)
      .Param("return_scores", "biased");
  ExpectNear(RunOracle(builder.request()).at("scores"), {-0.5, 1, 1.5, -1, 1.5, 4}, 1e-15);
}

TEST(Reference, SinkTakesItsShareAndLseIncludesIt) {
  RequestBuilder builder = Dots();
  builder.Doubles("sinks", {1}, {0}).Bytes("keep", {2, 3}, {1, 0, 0, 0, 0, 0});
  const Values values = RunOracle(builder.request());
  EXPECT_THAT(values.at("weights"), ElementsAre(0.5, 0, 0, 0, 0, 0));
  EXPECT_THAT(values.at("output"), ElementsAre(5, 0));
  ExpectNear({values.at("lse")[0]}, {std::log(2.0)}, 1e-15);
  EXPECT_EQ(values.at("lse")[1], -kInf);
}

TEST(Reference, QueryHeadsOfAGroupShareAKvHead) {
  RequestBuilder builder("scaled_dot_product");
  builder.Doubles("q", {1, 4, 1, 1}, {1, 1, 1, 1})
      .Doubles("k", {1, 2, 1, 1}, {0, 0})
      .Doubles("v", {1, 2, 1, 1}, {7, 8});
  EXPECT_THAT(RunOracle(builder.request()).at("output"), ElementsAre(7, 7, 8, 8));
}

TEST(Reference, RawAndCappedScoresShowEveryPairAndBiasedOnlyWhatIsKept) {
  RequestBuilder raw = Dots(), biased = Dots();
  raw.Bytes("keep", {2, 3}, {1, 0, 1, 1, 1, 0}).Param("return_scores", "raw");
  biased.Bytes("keep", {2, 3}, {1, 0, 1, 1, 1, 0}).Param("return_scores", "biased");
  EXPECT_THAT(RunOracle(raw.request()).at("scores"), ElementsAre(0, 1, 2, 0, 2, 4));
  EXPECT_THAT(RunOracle(biased.request()).at("scores"), ElementsAre(0, -kInf, 2, 0, 2, -kInf));
}

TEST(Reference, KernelsGiveTheirTextbookWeights) {
  const auto output = [](const std::string& kernel) {
    RequestBuilder builder = Line("kernel_regression");
    builder.Param("kernel", kernel).Param("width", 2.0);
    return RunOracle(builder.request()).at("output");
  };
  // Row 0 has u = 0.5, 0, 0.5; row 1 has u = 1, 0.5, 0.
  ExpectNear(output("triangular"), {(5 + 20 + 20) / 2.0, (10 + 40) / 1.5}, 1e-13);
  ExpectNear(output("epanechnikov"), {(7.5 + 20 + 30) / 2.5, (15 + 40) / 1.75}, 1e-13);
  ExpectNear(output("boxcar"), {70 / 3.0, 70 / 3.0}, 1e-13);
  ExpectNear(output("constant"), {70 / 3.0, 70 / 3.0}, 1e-13);
  ExpectNear(output("gaussian"),
             {WeightedMean({-0.125, 0, -0.125}, {10, 20, 40}),
              WeightedMean({-0.5, -0.125, 0}, {10, 20, 40})},
             1e-13);
}

TEST(Reference, RowWithoutKernelMassIsEmptyButGaussianNeverIs) {
  RequestBuilder builder("kernel_regression");
  builder.Doubles("q", {1, 1, 1, 1}, {1000})
      .Doubles("k", {1, 1, 2, 1}, {0, 1})
      .Doubles("v", {1, 1, 2, 1}, {5, kNan})
      .Param("kernel", "boxcar")
      .Param("return_weights", true);
  const Values boxcar = RunOracle(builder.request());
  EXPECT_THAT(boxcar.at("output"), ElementsAre(0));
  EXPECT_THAT(boxcar.at("weights"), ElementsAre(0, 0));

  RequestBuilder gaussian("kernel_regression");
  gaussian.Doubles("q", {1, 1, 1, 1}, {1000})
      .Doubles("k", {1, 1, 2, 1}, {0, 1})
      .Doubles("v", {1, 1, 2, 1}, {5, 6});
  EXPECT_THAT(RunOracle(gaussian.request()).at("output"), ElementsAre(6));
}

TEST(Reference, WidthMayDifferPerDimension) {
  RequestBuilder builder("kernel_regression");
  builder.Doubles("q", {1, 1, 1, 2}, {0, 0})
      .Doubles("k", {1, 1, 2, 2}, {2, 0, 0, 2})
      .Doubles("v", {1, 1, 2, 1}, {1, 0})
      .Doubles("width", {2}, {2, 1})
      .Param("return_scores", "raw");
  const Values values = RunOracle(builder.request());
  EXPECT_THAT(values.at("scores"), ElementsAre(-0.5, -2));
  ExpectNear(values.at("output"), {1 / (1 + std::exp(-1.5))}, 1e-15);
}

TEST(Reference, MissingOffsetNamesBothChoices) {
  RequestBuilder builder = Dots();
  builder.Param("causal", true);
  try {
    reference::Run(builder.request());
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOption);
    EXPECT_THAT(error.what(), HasSubstr("query_offset"));
    EXPECT_THAT(error.what(), HasSubstr("0 "));
    EXPECT_THAT(error.what(), HasSubstr("\"end\""));
  }
}

TEST(Reference, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(CodeOf(Line("no_such_mechanism")), ErrorCode::kOption);
  EXPECT_EQ(CodeOf(Line("scaled_dot_product").Param("casual", true)), ErrorCode::kOption);
  EXPECT_EQ(CodeOf(Line("scaled_dot_product").Bytes("mask", {2, 3}, {1, 1, 1, 1, 1, 1})),
            ErrorCode::kOption);
  EXPECT_EQ(CodeOf(Line("kernel_regression").Doubles("sinks", {1}, {0})), ErrorCode::kOption);
  EXPECT_EQ(CodeOf(Line("kernel_regression").Param("kernel", "cosine")), ErrorCode::kOption);
  EXPECT_EQ(CodeOf(RequestBuilder("scaled_dot_product")), ErrorCode::kOption);
}

TEST(Reference, RefusesNumbersAndShapesOutOfRange) {
  EXPECT_EQ(CodeOf(Dots().Param("softcap", 0.0)), ErrorCode::kRange);
  EXPECT_EQ(CodeOf(Line("scaled_dot_product").Param("scale", kNan)), ErrorCode::kRange);
  EXPECT_EQ(CodeOf(Dots().Param("window_left", -1.0)), ErrorCode::kRange);
  EXPECT_EQ(CodeOf(Dots().Param("window_left", 0.5)), ErrorCode::kRange);
  EXPECT_EQ(CodeOf(Dots().Integers("key_lengths", {1}, {4})), ErrorCode::kRange);
  EXPECT_EQ(CodeOf(Dots().Integers("key_lengths", {2}, {1, 1})), ErrorCode::kShape);
  EXPECT_EQ(CodeOf(Dots().Bytes("keep", {3}, {1, 1, 1})), ErrorCode::kShape);
  EXPECT_EQ(CodeOf(Dots().Doubles("keep", {2, 3}, {1, 1, 1, 1, 1, 1})), ErrorCode::kDType);
  EXPECT_EQ(CodeOf(Line("kernel_regression").Param("width", 0.0)), ErrorCode::kRange);
  EXPECT_EQ(CodeOf(Line("kernel_regression").Param("width", 1.0).Doubles("width", {1}, {1})),
            ErrorCode::kOption);
  EXPECT_EQ(CodeOf(Line("kernel_regression").Param("kernel", "boxcar").Param("return_lse", true)),
            ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace heed::testing
