#include "native_bench/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace heed::bench {
namespace {

TEST(Measure, ShortCallsShareASample) {
  EXPECT_EQ(CallsPerSample(1e-4), 10);
  EXPECT_EQ(CallsPerSample(0.5), 1);
  EXPECT_EQ(CallsPerSample(0), 100000);
}

TEST(Measure, RepetitionsGoOnUntilBothMinimaAreReached) {
  const MeasurePlan plan = {.min_reps = 10, .min_seconds = 0.5, .max_seconds = 10};
  EXPECT_TRUE(NeedsAnother(plan, 9, 3));
  EXPECT_TRUE(NeedsAnother(plan, 100, 0.4));
  EXPECT_FALSE(NeedsAnother(plan, 10, 0.5));
}

TEST(Measure, ASlowPeerStopsAtTheMaximumButIsTimedOnce) {
  const MeasurePlan plan = {.min_reps = 10, .min_seconds = 0.5, .max_seconds = 10};
  EXPECT_TRUE(NeedsAnother(plan, 0, 0));
  EXPECT_FALSE(NeedsAnother(plan, 1, 30));
}

TEST(Measure, CandidatesAreInterleavedInAlternatingOrder) {
  std::string trace;
  const std::vector<std::function<void()>> candidates = {[&] { trace += 'a'; },
                                                         [&] { trace += 'b'; }};
  const std::vector<double> warm_seconds = {1, 1};
  const MeasurePlan plan = {.min_reps = 3, .min_seconds = 0};
  const std::vector<Summary> summaries = MeasureInterleaved(candidates, warm_seconds, plan);
  EXPECT_EQ(trace, "abbaab");
  EXPECT_EQ(summaries[0].count, 3);
  EXPECT_EQ(summaries[1].count, 3);
}

TEST(Measure, AnotherStopwatchIsAskedInPlaceOfTheClock) {
  const std::vector<std::function<void()>> candidates = {[] {}};
  const std::vector<double> warm_seconds = {2e-4};
  const MeasurePlan plan = {.clock = Clock::kCudaEvents, .min_reps = 4, .min_seconds = 0};
  std::vector<int> asked;
  const auto stopwatch = [&](const std::function<void()>&, int calls) {
    asked.push_back(calls);
    return 0.01 * static_cast<double>(asked.size()) * calls;
  };
  const std::vector<Summary> summaries =
      MeasureInterleaved(candidates, warm_seconds, plan, stopwatch);
  EXPECT_THAT(asked, ::testing::ElementsAre(5, 5, 5, 5));
  EXPECT_DOUBLE_EQ(summaries[0].min, 0.01);
  EXPECT_DOUBLE_EQ(summaries[0].median, 0.025);
}

TEST(Measure, NoCandidatesGiveNoSummaries) { EXPECT_TRUE(MeasureInterleaved({}, {}, {}).empty()); }

}  // namespace
}  // namespace heed::bench
