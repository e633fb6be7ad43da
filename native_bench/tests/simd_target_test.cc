#include "native_bench/simd_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heed/error.h"
#include "native_bench/probes.h"

namespace heed::bench {
namespace {

TEST(SimdTarget, EverySupportedTargetCanBeForced) {
  for (const std::string& name : SupportedTargetNames()) {
    ForceTarget(name);
    EXPECT_EQ(ChosenTarget(), name);
  }
  UseBestTarget();
  EXPECT_EQ(ChosenTarget(), SupportedTargetNames().front());
}

TEST(SimdTarget, UnknownTargetIsRefusedWithTheChoices) {
  try {
    ForceTarget("MMX");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(SupportedTargetNames().front()));
  }
  EXPECT_EQ(ChosenTarget(), SupportedTargetNames().front());
}

TEST(Probes, TwoMeasurementsOfOnePeakAgreeInOrderOfMagnitude) {
  const std::string target = SupportedTargetNames().front();
  const FmaPeak first = MeasureFmaPeak(target, 1);
  const FmaPeak second = MeasureFmaPeak(target, 1);
  EXPECT_GT(first.gflops, 0.01);
  EXPECT_GT(second.gflops, first.gflops / 10);
  EXPECT_LT(second.gflops, first.gflops * 10);
  EXPECT_EQ(ChosenTarget(), target);
}

}  // namespace
}  // namespace heed::bench
