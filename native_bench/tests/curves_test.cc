#include "native_bench/curves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "heed/registry.h"

namespace heed::bench {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

const Progress kSilent = [](const std::string&, size_t, size_t) {};

Options SmallOptions() {
  Options options;
  options.grid.heads = {{1, 1}};
  options.grid.head_dims = {16};
  options.grid.lengths = {{64, 64}, {128, 128}};
  options.grid.threads = {1};
  options.plan = {.min_reps = 1, .min_seconds = 0, .max_seconds = 10};
  return options;
}

Curve CurveOf(const std::vector<double>& milliseconds) {
  Curve curve;
  int64_t length = 2048;
  for (const double ms : milliseconds) {
    CurvePoint& point = curve.points.emplace_back();
    point.length = length;
    point.seconds.median = ms * 1e-3;
    point.cost.scratch_bytes = length;
    length *= 2;
  }
  return curve;
}

TEST(Curves, GrowthCountsFromFourThousandTokensOn) {
  const Curve quadratic = CurveOf({100, 1, 4, 16});  // 2048 to 16384 tokens
  EXPECT_NEAR(quadratic.Exponent(), 2, 1e-12);
  EXPECT_NEAR(quadratic.OverLinear(), 4, 1e-12);
  EXPECT_NEAR(quadratic.ScratchGrowth(), 4, 1e-12);
  const Curve linear = CurveOf({100, 1, 2.2, 4});
  EXPECT_NEAR(linear.Exponent(), 1, 1e-12);
  EXPECT_NEAR(linear.OverLinear(), 1.1, 1e-12);
  EXPECT_EQ(CurveOf({1, 2}).Exponent(), 0);
}

TEST(Curves, TakeExactAttentionAndTheFamiliesThatGrowSlowly) {
  const std::vector<std::string> ids = CurveMechanisms();
  EXPECT_EQ(ids[0], "scaled_dot_product");
  EXPECT_THAT(ids, Contains("retention"));
  EXPECT_THAT(ids, Contains("block_mixture"));
  EXPECT_THAT(ids, Not(Contains("causal_conv")));
  EXPECT_THAT(ids, Not(Contains("rope")));
}

TEST(Curves, EveryMechanismIsRight) {
  Options options = SmallOptions();
  options.verify_only = true;
  const CurveReport report = MeasureCurves(options, {}, kSilent);
  EXPECT_EQ(report.curves.size(), CurveMechanisms().size());
  for (const Curve& curve : report.curves) {
    EXPECT_TRUE(curve.verdict.Passed()) << curve.shape.mechanism << " " << curve.verdict.failure;
    EXPECT_GT(curve.verdict.rows, 0) << curve.shape.mechanism;
    EXPECT_TRUE(curve.points.empty());
  }
}

TEST(Curves, ReportsTimes) {
  Options options = SmallOptions();
  options.filter = "^retention$";
  const CurveReport report = MeasureCurves(options, {}, kSilent);
  ASSERT_EQ(report.curves.size(), 1u);
  ASSERT_EQ(report.curves[0].points.size(), 2u);
  EXPECT_GT(report.curves[0].points[1].seconds.median, 0);
  EXPECT_EQ(report.curves[0].points[1].length, 128);
  std::ostringstream out;
  PrintCurves(out, report);
  EXPECT_THAT(out.str(), HasSubstr("retention"));
  const nlohmann::json json = ToJson(report);
  EXPECT_EQ(json.at("curves").at(0).at("family"), "recurrent");
  EXPECT_EQ(json.at("curves").at(0).at("points").at(1).at("length"), 128);
  EXPECT_GT(json.at("curves").at(0).at("points").at(1).at("flop"), 0);
  options.filter = "nothing like that";
  EXPECT_THROW(MeasureCurves(options, {}, kSilent), Error);
}

TEST(Curves, EndWhereACallWouldTakeTooLong) {
  Options options = SmallOptions();
  options.filter = "^scaled_dot_product$";
  options.grid.lengths = {{256, 256}, {1048576, 1048576}};
  options.plan.max_seconds = 1;
  const CurveReport report = MeasureCurves(options, {}, kSilent);
  EXPECT_EQ(report.curves[0].points.size(), 1u);
}

}  // namespace
}  // namespace heed::bench
