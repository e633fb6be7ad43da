#include "native_bench/backward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "native_bench/accuracy.h"

namespace heed::bench {
namespace {

using ::testing::HasSubstr;

const Progress kSilent = [](const std::string&, size_t, size_t) {};

Options SmallOptions() {
  Options options;
  options.grid.mechanisms = {"scaled_dot_product", "sigmoid", "retention", "cope"};
  options.grid.heads = {{4, 2}};
  options.grid.head_dims = {16};
  options.grid.lengths = {{80, 80}};
  options.grid.masks = {Mask::kFull, Mask::kCausal};
  options.grid.threads = {1};
  options.plan = {.min_reps = 1, .min_seconds = 0, .max_seconds = 0};
  return options;
}

TEST(Backward, EveryRowWithAGradientIsRight) {
  Options options = SmallOptions();
  options.verify_only = true;
  const BackwardReport report = MeasureBackward(options, {}, kSilent);
  ASSERT_EQ(report.rows.size(), 7u);  // retention is always causal
  for (const BackwardRow& row : report.rows) {
    EXPECT_EQ(row.status, Status::kVerified)
        << row.shape.Name() << " " << row.reason << " " << row.verdict.max_error;
    const int tables = row.shape.mechanism == "cope" ? 1 : 0;
    EXPECT_EQ(row.verdict.rows, 3 + tables) << row.shape.Name() << ": q, k, v and tables";
  }
}

TEST(Backward, RowsOfEveryFamilyAreHeldToTheirPromise) {
  Options options = SmallOptions();
  // Choices, kinks, decays that must stay below 0, rows without keys, weights of layers.
  options.grid.mechanisms = {"top_k", "relu",  "gated_linear", "memory_compressed",
                             "graph", "quest", "multi_head",   "rope"};
  options.grid.masks = {Mask::kFull};
  options.verify_only = true;
  const BackwardReport report = MeasureBackward(options, {}, kSilent);
  ASSERT_EQ(report.rows.size(), options.grid.mechanisms.size());
  for (const BackwardRow& row : report.rows) {
    EXPECT_EQ(row.status, Status::kVerified)
        << row.shape.Name() << " " << row.reason << " " << row.verdict.max_error;
    EXPECT_EQ(row.verdict.bound, GradientMaxErrorOf(row.shape.mechanism));
  }
}

TEST(Backward, ACaseThatTheRowRefusesIsNotWrong) {
  Options options = SmallOptions();
  options.grid.mechanisms = {"reformer", "sigmoid"};
  options.grid.lengths = {{1, 80}};  // reformer takes one length
  options.grid.masks = {Mask::kFull};
  const BackwardReport report = MeasureBackward(options, {}, kSilent);
  ASSERT_EQ(report.rows.size(), 2u);
  EXPECT_EQ(report.rows[0].status, Status::kRefused);
  EXPECT_THAT(report.rows[0].reason, HasSubstr("v has shape [1, 2, 80, 16]"));
  EXPECT_EQ(report.rows[1].status, Status::kTimed);
  EXPECT_FALSE(AnyWrong(report));
}

TEST(Backward, AWrongGradientIsNoticed) {
  const BackwardProblem problem(
      {.mechanism = "scaled_dot_product", .heads = {1, 1}, .lengths = {9, 9}, .head_dim = 8}, 1);
  const auto pool = MakeThreadPool(1);
  problem.Forward(*pool);
  problem.Backward(*pool);
  const BackwardProblem other(
      {.mechanism = "scaled_dot_product", .heads = {1, 1}, .lengths = {9, 9}, .head_dim = 8}, 2);
  EXPECT_TRUE(problem.Verify(1).Passed());
  other.Forward(*pool);  // backward never ran: its gradients are not there
  EXPECT_FALSE(other.Verify(1).Passed());
}

TEST(Backward, ReportsNamePeersWhereThereAreSome) {
  BackwardReport report;
  for (const char* peer : {"heed", "heed_hopper"}) {
    BackwardRow& row = report.rows.emplace_back();
    row.shape.mechanism = "scaled_dot_product";
    row.peer = peer;
  }
  report.rows[1].reason = "is for compute capability 9.0";
  std::ostringstream out, csv, markdown;
  PrintBackward(out, report);
  PrintCsv(csv, report);
  PrintMarkdown(markdown, report);
  EXPECT_THAT(out.str(), HasSubstr("by heed_hopper: is for compute capability 9.0"));
  EXPECT_THAT(csv.str(), HasSubstr(",threads,peer,ms,"));
  EXPECT_THAT(csv.str(), HasSubstr(",heed_hopper,refused,"));
  EXPECT_THAT(markdown.str(), HasSubstr("| heed_hopper |"));
  EXPECT_EQ(ToJson(report)["rows"][1]["peer"], "heed_hopper");
}

TEST(Backward, Reports) {
  Options options = SmallOptions();
  options.filter = "sigmoid.*full";
  const BackwardReport report = MeasureBackward(options, {}, kSilent);
  ASSERT_EQ(report.rows.size(), 1u);
  EXPECT_DOUBLE_EQ(report.rows[0].flop, 2.5 * 2 * 4 * 80 * 80 * 32);
  const nlohmann::json json = ToJson(report);
  EXPECT_EQ(json["schema"], "heed-bench-backward");
  EXPECT_GT(json["rows"][0]["gflops"], 0);
  EXPECT_FALSE(json["rows"][0].contains("peer"));
  EXPECT_GT(json["rows"][0]["forward_ms"]["median"], 0);
  std::ostringstream out;
  PrintBackward(out, report);
  EXPECT_THAT(out.str(), HasSubstr("sigmoid"));
  std::ostringstream csv, markdown;
  PrintCsv(csv, report);
  PrintMarkdown(markdown, report);
  EXPECT_THAT(csv.str(), HasSubstr("\nsigmoid,4:2,16,80,full,float32,1,"));
  EXPECT_THAT(markdown.str(), HasSubstr("| x forward |"));
  options.grid.mechanisms = {"retention"};
  EXPECT_THROW(MeasureBackward(options, {}, kSilent), Error);
}

}  // namespace
}  // namespace heed::bench
