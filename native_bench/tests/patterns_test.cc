#include "native_bench/patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "heed/cost.h"

namespace heed::bench {
namespace {

using ::testing::HasSubstr;

Options SmallOptions() {
  Options options;
  options.grid.heads = {{2, 2}};
  options.grid.head_dims = {16};
  options.grid.threads = {1};
  options.plan = {.min_reps = 1, .min_seconds = 0, .max_seconds = 0};
  return options;
}

const Progress kSilent = [](const std::string&, size_t, size_t) {};

TEST(Patterns, ExponentOfAPower) {
  EXPECT_NEAR(Exponent({1, 2, 4}, {3, 12, 48}), 2, 1e-12);
  EXPECT_NEAR(Exponent({4096, 8192}, {0.5, 1}), 1, 1e-12);
}

TEST(Patterns, NamesAreDistinctInAGroup) {
  std::set<std::string> names;
  for (const PatternCase& c : PatternCases("")) {
    EXPECT_TRUE(names.insert(c.group + ": " + c.Name()).second) << c.Name();
  }
  EXPECT_EQ(names.size(), 4u * 5 + 2 * 6 + 4 + 3);
}

TEST(Patterns, FilterKeepsWholeGroups) {
  const auto cases = PatternCases("block_sparse/128/10%/l4096");
  ASSERT_EQ(cases.size(), 5u);
  EXPECT_EQ(cases[0].Name(), "dense/l4096");
  EXPECT_EQ(cases[2].Name(), "block_sparse/128/10%/l4096");
}

TEST(Patterns, DensityIsWhatIsVisible) {
  for (const PatternCase& c : PatternCases("block_sparse/64/.*l4096")) {
    if (c.block == 0) continue;
    const PatternProblem problem(c, {1, 1}, 16, 3);
    const double pairs = *EstimateCost(problem.request(), 1).flops / (4 * 16);
    const double whole = static_cast<double>(c.length) * static_cast<double>(c.length);
    EXPECT_NEAR(pairs / whole, c.density, 0.5 / 64) << c.Name();
  }
}

TEST(Patterns, EveryRuleIsRight) {
  Options options = SmallOptions();
  options.verify_only = true;
  for (const Heads heads : {Heads{2, 2}, Heads{4, 2}}) {
    options.grid.heads = {heads};
    const PatternReport report = MeasurePatterns(options, {}, kSilent);
    EXPECT_EQ(report.rows.size(), 39u);
    for (const PatternRow& row : report.rows) {
      EXPECT_TRUE(row.verdict.Passed()) << row.shape.Name() << " " << row.verdict.failure;
      EXPECT_GT(row.verdict.bound, 0) << row.shape.Name();
    }
  }
}

TEST(Patterns, ReportComparesWithDense) {
  Options options = SmallOptions();
  options.filter = "block_sparse/64/.*l4096";
  const PatternReport report = MeasurePatterns(options, {}, kSilent);
  ASSERT_EQ(report.rows.size(), 5u);
  EXPECT_DOUBLE_EQ(report.rows[0].over_dense, 1);
  EXPECT_DOUBLE_EQ(report.rows[0].visible, 1);
  for (const PatternRow& row : report.rows) EXPECT_GT(row.seconds.median, 0);
  EXPECT_TRUE(report.growths.empty());  // all of one length
  std::ostringstream out;
  PrintPatterns(out, report);
  EXPECT_THAT(out.str(), HasSubstr("block_sparse/64/10%/l4096"));
  const nlohmann::json json = ToJson(report);
  EXPECT_EQ(json.at("schema"), "heed-bench-patterns");
  EXPECT_EQ(json.at("rows").at(1).at("status"), "timed");
  EXPECT_NEAR(json.at("rows").at(1).at("visible"), 0.05, 0.01);
  EXPECT_EQ(json.at("rows").at(1).at("density"), 0.05);
  EXPECT_EQ(json.at("rows").at(1).at("params").at("block_size"), 64);
  EXPECT_EQ(json.at("rows").at(0).at("params").size(), 0u);
  EXPECT_EQ(json.at("rows").at(0).at("num_heads"), 2);
  EXPECT_EQ(json.at("rows").at(0).at("head_dim"), 16);
}

}  // namespace
}  // namespace heed::bench
