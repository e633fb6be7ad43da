#include "native_bench/statistics.h"

#include <gtest/gtest.h>

#include <vector>

namespace heed::bench {
namespace {

TEST(Statistics, QuantileInterpolatesBetweenNeighbours) {
  const std::vector<double> samples = {40, 10, 30, 20};
  EXPECT_DOUBLE_EQ(Quantile(samples, 0), 10);
  EXPECT_DOUBLE_EQ(Quantile(samples, 0.5), 25);
  EXPECT_DOUBLE_EQ(Quantile(samples, 0.9), 37);
  EXPECT_DOUBLE_EQ(Quantile(samples, 1), 40);
}

TEST(Statistics, OneSampleIsEveryQuantile) {
  const std::vector<double> samples = {7};
  const Summary summary = Summarize(samples);
  EXPECT_EQ(summary.count, 1);
  EXPECT_EQ(summary.min, 7);
  EXPECT_EQ(summary.p10, 7);
  EXPECT_EQ(summary.median, 7);
  EXPECT_EQ(summary.p90, 7);
  EXPECT_EQ(summary.Spread(), 0);
}

TEST(Statistics, NoSamplesSummarizeToZero) {
  const Summary summary = Summarize({});
  EXPECT_EQ(summary.count, 0);
  EXPECT_EQ(summary.median, 0);
  EXPECT_EQ(summary.Spread(), 0);
}

TEST(Statistics, SpreadIsRelativeToTheMedian) {
  std::vector<double> samples;
  for (int i = 0; i <= 10; ++i) samples.push_back(100 + i);
  EXPECT_DOUBLE_EQ(Summarize(samples).Spread(), 8.0 / 105.0);
}

}  // namespace
}  // namespace heed::bench
