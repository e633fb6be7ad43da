#include "native_bench/approximation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

namespace heed::bench {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const Progress kSilent = [](const std::string&, size_t, size_t) {};

Options SmallOptions() {
  Options options;
  options.grid.heads = {{1, 1}};
  options.grid.head_dims = {16};
  options.grid.lengths = {{2048, 2048}};
  options.grid.masks = {Mask::kFull, Mask::kCausal};
  options.grid.threads = {1};
  options.plan = {.min_reps = 1, .min_seconds = 0, .max_seconds = 0};
  return options;
}

TEST(Approximation, EveryRowRunsAndIsAtADistance) {
  Options options = SmallOptions();
  options.verify_only = true;
  EXPECT_THAT(ApproximateMechanisms(), Contains("linear"));
  const ApproximationReport report = MeasureApproximation(options, {}, kSilent);
  EXPECT_GE(report.rows.size(), ApproximateMechanisms().size());
  for (const ApproximationRow& row : report.rows) {
    EXPECT_EQ(row.failure, "") << row.shape.Name();
    for (const double error : row.error) {
      // Policies of a cache keep short sequences whole.
      EXPECT_TRUE(error > 0 || IsAlwaysCausal(row.shape.mechanism)) << row.shape.Name();
      EXPECT_LT(error, 20) << row.shape.Name();
    }
    EXPECT_EQ(row.seconds.count, 0);
  }
  EXPECT_FALSE(AnyWrong(report));
}

// Blocks that are all chosen leave nothing out: the comparison itself has no error.
TEST(Approximation, ExactAttentionIsAtNoDistance) {
  Options options = SmallOptions();
  options.filter = "^block_mixture";
  options.grid.lengths = {{96, 96}};
  const ApproximationReport report = MeasureApproximation(options, {}, kSilent);
  ASSERT_FALSE(report.rows.empty());
  for (const double error : report.rows[0].error) EXPECT_LT(error, 1e-5);
  EXPECT_GT(report.rows[0].over_exact, 0);
}

TEST(Approximation, DataIsWhatItsNameSays) {
  const Problem problem({.mechanism = "scaled_dot_product",
                         .heads = {1, 1},
                         .lengths = {256, 256},
                         .head_dim = 64,
                         .mask = Mask::kCausal},
                        1);
  // The largest weight of a row, by the logits of q and k.
  const auto largest_weight = [&](int64_t i) {
    double sum = 0, most = 0;
    for (int64_t j = 0; j <= i; ++j) {
      double logit = 0;
      for (int64_t c = 0; c < 64; ++c) logit += problem.q()(0, 0, i, c) * problem.k()(0, 0, j, c);
      const double weight = std::exp(logit / 8);
      sum += weight;
      most = std::max(most, weight);
    }
    return most / sum;
  };
  DrawData(Data::kNeedle, problem, 3);
  double needle = 0, random = 0;
  for (int64_t i = 128; i < 256; ++i) needle += largest_weight(i) / 128;
  DrawData(Data::kRandom, problem, 3);
  for (int64_t i = 128; i < 256; ++i) random += largest_weight(i) / 128;
  EXPECT_GT(needle, 0.9);
  EXPECT_LT(random, 0.3);
  const float first = problem.q()(0, 0, 0, 0);
  DrawData(Data::kTopics, problem, 3);
  EXPECT_NE(problem.q()(0, 0, 0, 0), first);
  DrawData(Data::kRandom, problem, 3);
  EXPECT_EQ(problem.q()(0, 0, 0, 0), first);
}

TEST(Approximation, Reports) {
  Options options = SmallOptions();
  options.filter = "^linear/";
  const ApproximationReport report = MeasureApproximation(options, {}, kSilent);
  ASSERT_EQ(report.rows.size(), 2u);
  std::ostringstream out;
  PrintApproximation(out, report);
  EXPECT_THAT(out.str(), HasSubstr("linear"));
  const nlohmann::json json = ToJson(report);
  EXPECT_EQ(json.at("schema"), "heed-bench-approximation");
  EXPECT_GT(json.at("rows").at(1).at("error").at("topics"), 0);
  EXPECT_GT(json.at("rows").at(1).at("over_exact"), 0);
}

}  // namespace
}  // namespace heed::bench
