#include "native_bench/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "heed/error.h"

namespace heed::bench {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double kTolerance = 0.05;

json TimedRow(const std::string& name, double median, double spread) {
  return {{"case", name},
          {"peer", "heed"},
          {"status", "timed"},
          {"ms",
           {{"median", median},
            {"p10", median * (1 - spread / 2)},
            {"p90", median * (1 + spread / 2)},
            {"min", median * (1 - spread)}}}};
}

json ReportOf(const std::vector<json>& rows) {
  return {{"schema", "heed-bench"},
          {"schema_version", 2},
          {"machine", {{"cpu_model", "A"}, {"simd", {{"chosen", "AVX2"}}}}},
          {"plan", {{"clock", "wall"}}},
          {"probes", {{"fma", {{{"target", "AVX2"}, {"threads", 1}, {"gflops", 100.0}}}}}},
          {"rows", rows}};
}

Change ChangeOf(double older, double older_spread, double newer, double newer_spread) {
  const Comparison comparison = Compare(ReportOf({TimedRow("a", older, older_spread)}),
                                        ReportOf({TimedRow("a", newer, newer_spread)}), kTolerance);
  return comparison.rows.at(0).change;
}

TEST(Compare, SteadyRunsThatDifferAreFasterOrSlower) {
  EXPECT_EQ(ChangeOf(10, 0.02, 8, 0.02), Change::kFaster);
  EXPECT_EQ(ChangeOf(10, 0.02, 12, 0.02), Change::kSlower);
}

TEST(Compare, SteadyRunsWithinTheToleranceAreTheSame) {
  EXPECT_EQ(ChangeOf(10, 0.02, 10.4, 0.02), Change::kSame);
  EXPECT_EQ(ChangeOf(10, 0.02, 9.6, 0.02), Change::kSame);
}

TEST(Compare, OverlappingSamplesAreNoise) {
  EXPECT_EQ(ChangeOf(10, 0.5, 12, 0.5), Change::kNoisy);
  EXPECT_EQ(ChangeOf(10, 0.5, 8, 0.5), Change::kNoisy);
}

TEST(Compare, EqualMediansOfUnsteadyRunsAreNoise) {
  EXPECT_EQ(ChangeOf(10, 0.3, 10, 0.02), Change::kNoisy);
  EXPECT_EQ(ChangeOf(10, 0.02, 10, 0.3), Change::kNoisy);
}

TEST(Compare, ALargeChangeShowsThroughNoise) {
  EXPECT_EQ(ChangeOf(10, 0.4, 30, 0.4), Change::kSlower);
  EXPECT_EQ(ChangeOf(30, 0.4, 10, 0.4), Change::kFaster);
}

TEST(Compare, TheToleranceDecides) {
  const Times older = {10, 9.9, 10.1}, newer = {11, 10.9, 11.1};
  EXPECT_EQ(Judge(older, newer, 0.05), Change::kSlower);
  EXPECT_EQ(Judge(older, newer, 0.2), Change::kSame);
}

TEST(Compare, RowsMatchByCaseAndPeer) {
  json other = TimedRow("a", 50, 0);
  other["peer"] = "xsimd";
  const Comparison comparison =
      Compare(ReportOf({TimedRow("a", 10, 0), other, TimedRow("gone", 1, 0)}),
              ReportOf({other, TimedRow("new", 1, 0), TimedRow("a", 5, 0)}), kTolerance);
  ASSERT_THAT(comparison.rows, SizeIs(2));
  EXPECT_EQ(comparison.rows[0].change, Change::kSame);
  EXPECT_EQ(comparison.rows[1].change, Change::kFaster);
  EXPECT_THAT(comparison.only_older, ElementsAre("gone heed"));
  EXPECT_THAT(comparison.only_newer, ElementsAre("new heed"));
}

TEST(Compare, RowsWithoutATimeAreLeftOut) {
  json wrong = TimedRow("b", 1, 0);
  wrong.erase("ms");
  const Comparison comparison = Compare(ReportOf({TimedRow("a", 1, 0), TimedRow("b", 1, 0)}),
                                        ReportOf({TimedRow("a", 1, 0), wrong}), kTolerance);
  EXPECT_THAT(comparison.rows, SizeIs(1));
  EXPECT_THAT(comparison.only_older, ElementsAre("b heed"));
}

TEST(Compare, CurvesMatchByLength) {
  const auto curve = [](double ms) {
    json point = TimedRow("", ms, 0);
    point["length"] = 1024;
    return json{{"schema", "heed-bench-curves"},
                {"schema_version", 2},
                {"curves", {{{"mechanism", "linear"}, {"mask", "causal"}, {"points", {point}}}}}};
  };
  const Comparison comparison = Compare(curve(2), curve(1), kTolerance);
  ASSERT_THAT(comparison.rows, SizeIs(1));
  EXPECT_EQ(comparison.rows[0].name, "linear/causal/l1024");
  EXPECT_EQ(comparison.rows[0].change, Change::kFaster);
}

TEST(Compare, OneSlowerRowIsEnough) {
  const json before = ReportOf({TimedRow("a", 10, 0), TimedRow("b", 10, 0)});
  const json better = ReportOf({TimedRow("a", 5, 0), TimedRow("b", 10, 0)});
  const json worse = ReportOf({TimedRow("a", 5, 0), TimedRow("b", 20, 0)});
  EXPECT_FALSE(AnySlower(Compare(before, better, kTolerance)));
  EXPECT_TRUE(AnySlower(Compare(before, worse, kTolerance)));
}

TEST(Compare, ReportsOfOtherKindsAreRefused) {
  const json report = ReportOf({TimedRow("a", 1, 0)});
  json other = report;
  other["schema"] = "heed-bench-decode";
  json later = report;
  later["schema_version"] = 3;
  EXPECT_THROW(Compare(report, other, kTolerance), Error);
  EXPECT_THROW(Compare(report, later, kTolerance), Error);
  EXPECT_THROW(Compare(json::object(), report, kTolerance), Error);
  EXPECT_THROW(Compare(report, ReportOf({TimedRow("b", 1, 0)}), kTolerance), Error);
}

TEST(Compare, PeaksOfTwoPlacesAreNotMixed) {
  json report = ReportOf({TimedRow("a", 1, 0)});
  report["probes"]["fma"] = {
      {{"place", "node"}, {"target", "relaxed"}, {"threads", 1}, {"gflops", 60.0}},
      {{"place", "chromium"}, {"target", "relaxed"}, {"threads", 1}, {"gflops", 40.0}}};
  EXPECT_THAT(Compare(report, report, kTolerance).differences, IsEmpty());
}

TEST(Compare, WhatDiffersBetweenTheRunsIsTold) {
  const json before = ReportOf({TimedRow("a", 1, 0)});
  json after = before;
  EXPECT_THAT(Compare(before, after, kTolerance).differences, IsEmpty());
  after["machine"]["cpu_model"] = "B";
  after["probes"]["fma"][0]["gflops"] = 80.0;
  const Comparison comparison = Compare(before, after, kTolerance);
  EXPECT_THAT(comparison.differences, ElementsAre(HasSubstr("A, now B"), HasSubstr("80.0")));
  std::ostringstream out;
  PrintComparison(out, comparison, Style::kPlain);
  EXPECT_THAT(out.str(), HasSubstr("FASTER 0, SLOWER 0, SAME 1, NOISY 0"));
  EXPECT_THAT(out.str(), HasSubstr("not alike: machine/cpu_model"));
}

}  // namespace
}  // namespace heed::bench
