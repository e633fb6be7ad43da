#include "native_bench/steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace heed::bench {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const Progress kSilent = [](const std::string&, size_t, size_t) {};

Options SmallOptions() {
  Options options;
  options.grid.heads = {{2, 1}};
  options.grid.head_dims = {16, 24};
  options.grid.threads = {1};
  options.plan = {.min_reps = 1, .min_seconds = 0, .max_seconds = 0};
  return options;
}

TEST(Steps, EveryMechanismIsRightOverSeveralTokens) {
  Options options = SmallOptions();
  options.verify_only = true;
  EXPECT_THAT(StepMechanisms(), Contains("retention"));
  EXPECT_THAT(StepMechanisms(), Contains("kimi_delta"));
  const StepReport report = MeasureSteps(options, {}, kSilent);
  EXPECT_EQ(report.rows.size(), 2 * StepMechanisms().size());
  for (const StepRow& row : report.rows) {
    EXPECT_TRUE(row.verdict.Passed())
        << row.shape.Name() << " " << row.verdict.failure << " " << row.verdict.max_error;
    EXPECT_GT(row.verdict.bound, 0);
    EXPECT_GT(row.state_bytes, 0);
  }
}

TEST(Steps, CarryTheStateOn) {
  const StepProblem problem(
      {.mechanism = "retention", .heads = {1, 1}, .lengths = {1, 1}, .head_dim = 16}, 1);
  const auto pool = MakeThreadPool(1);
  problem.Step(*pool);
  const float once = problem.output().floats()[0];
  problem.Step(*pool);
  EXPECT_NE(problem.output().floats()[0], once);
  problem.Reset();
  problem.Step(*pool);
  EXPECT_EQ(problem.output().floats()[0], once);
}

TEST(Steps, Reports) {
  Options options = SmallOptions();
  options.filter = "^delta_rule$";
  const StepReport report = MeasureSteps(options, {}, kSilent);
  ASSERT_EQ(report.rows.size(), 2u);
  EXPECT_GT(report.rows[0].Gbps(), 0);
  EXPECT_EQ(report.rows[0].state_bytes, 16 * 16 * 4);
  std::ostringstream out;
  PrintSteps(out, report);
  EXPECT_THAT(out.str(), HasSubstr("delta_rule/h2:1/d16/l1"));
  EXPECT_EQ(ToJson(report).at("rows").at(0).at("status"), "timed");
  options.filter = "nothing like that";
  EXPECT_THROW(MeasureSteps(options, {}, kSilent), Error);
}

}  // namespace
}  // namespace heed::bench
