#include "native_bench/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace heed::bench {
namespace {

TEST(Gpu, AReadingIsTakenApart) {
  const auto reading =
      ParseGpuReading("NVIDIA H200, 580.159.04, 1980, 700.00, 1755, 3201, 512.34, 51\n");
  ASSERT_TRUE(reading.has_value());
  EXPECT_EQ(reading->name, "NVIDIA H200");
  EXPECT_EQ(reading->driver, "580.159.04");
  EXPECT_EQ(reading->max_sm_mhz, 1980);
  EXPECT_EQ(reading->power_limit_w, 700);
  EXPECT_EQ(reading->sensors.sm_mhz, 1755);
  EXPECT_EQ(reading->sensors.memory_mhz, 3201);
  EXPECT_EQ(reading->sensors.power_w, 512.34);
  EXPECT_EQ(reading->sensors.temperature_c, 51);
}

TEST(Gpu, WhatTheDeviceDoesNotTellIsAbsent) {
  const auto reading =
      ParseGpuReading("NVIDIA GB10, 580.95.05, [N/A], [Not Supported], 208, , 12 W, 44");
  ASSERT_TRUE(reading.has_value());
  EXPECT_FALSE(reading->max_sm_mhz.has_value());
  EXPECT_FALSE(reading->power_limit_w.has_value());
  EXPECT_EQ(reading->sensors.sm_mhz, 208);
  EXPECT_FALSE(reading->sensors.memory_mhz.has_value());
  EXPECT_FALSE(reading->sensors.power_w.has_value());
  const nlohmann::json expected = {{"sm_mhz", 208.0}, {"temperature_c", 44.0}};
  EXPECT_EQ(SensorsJson(reading->sensors), expected);
}

TEST(Gpu, OtherLinesAreNoReading) {
  for (const char* line : {"", "No devices were found", "a, b, c", "1,2,3,4,5,6,7,8,9",
                           "Field \"clocks.x\" is not a valid field to query."}) {
    EXPECT_FALSE(ParseGpuReading(line).has_value()) << line;
  }
}

TEST(Gpu, TheJsonHasWhatIsKnown) {
  Gpu gpu;
  gpu.name = "NVIDIA H100";
  gpu.runtime = "13.0";
  gpu.multiprocessors = 132;
  gpu.before.power_w = 70;
  const nlohmann::json json = GpuJson(gpu);
  EXPECT_EQ(json.at("name"), "NVIDIA H100");
  EXPECT_EQ(json.at("multiprocessors"), 132);
  EXPECT_EQ(json.at("before").at("power_w"), 70);
  EXPECT_TRUE(json.at("after").empty());
  EXPECT_FALSE(json.contains("power_limit_w"));
}

}  // namespace
}  // namespace heed::bench
