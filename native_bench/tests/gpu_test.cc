#include "native_bench/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "native_bench/nvml.h"

namespace heed::bench {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::SizeIs;

TEST(Gpu, TheVersionOfTheDriverIsInTheTextOfItsModule) {
  EXPECT_EQ(ParseDriverVersion("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04"
                               "  Release Build  (dvs-builder@U22)  Tue Sep  2 2025\n"
                               "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"),
            "580.159.04");
  EXPECT_EQ(ParseDriverVersion("NVRM version: NVIDIA UNIX x86_64 Kernel Module  358.16  Mon Nov 16"
                               " 19:25:55 PST 2015\n"),
            "358.16");
  for (const char* text : {"", "NVRM version:", "NVRM version: NVIDIA UNIX x86_64\nGCC 12.3.0",
                           "GCC version: 12.3.0"}) {
    EXPECT_EQ(ParseDriverVersion(text), "") << text;
  }
}

TEST(Gpu, NvmlIsLookedForBesideTheDriverToo) {
  const auto paths = NvmlPaths(
      "5a0000-5b0000 r-xp 00000000 08:01 17  /usr/bin/heed-bench\n"
      "7f0000-7f1000 r--p 00000000 08:01 18  /opt/the driver/lib/libcuda.so.580.159.04\n"
      "7f2000-7f3000 r-xp 00001000 08:01 18  /opt/the driver/lib/libcuda.so.580.159.04\n");
  EXPECT_THAT(paths, ElementsAre("libnvidia-ml.so.1", "/opt/the driver/lib/libnvidia-ml.so.1",
                                 "/usr/lib64-nvidia/libnvidia-ml.so.1",
                                 "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
                                 "/usr/lib/wsl/lib/libnvidia-ml.so.1"));
  EXPECT_THAT(NvmlPaths(""), SizeIs(4));
  EXPECT_THAT(NvmlPaths("7f0-7f1 r--p 0 0:1 8 /a/libcuda.so.1"), Contains("/a/libnvidia-ml.so.1"));
}

#if defined(HEED_FAKE_NVML)
TEST(Gpu, NvmlIsAskedWhatItKnows) {
  const GpuReading reading =
      ReadNvml({"/nowhere/libnvidia-ml.so.1", HEED_FAKE_NVML}, "0000:3b:00.0");
  EXPECT_EQ(reading.missing, "");
  EXPECT_EQ(reading.driver, "580.159.04");
  EXPECT_EQ(reading.max_sm_mhz, 1980);
  EXPECT_EQ(reading.power_limit_w, 700);
  EXPECT_EQ(reading.sensors.sm_mhz, 1755);
  EXPECT_EQ(reading.sensors.memory_mhz, 3201);
  EXPECT_EQ(reading.sensors.power_w, 512.34);
  EXPECT_FALSE(reading.sensors.temperature_c.has_value());
  const nlohmann::json expected = {{"sm_mhz", 1755.0}, {"memory_mhz", 3201.0}, {"power_w", 512.34}};
  EXPECT_EQ(SensorsJson(reading.sensors), expected);
}

TEST(Gpu, AReadingSaysWhyItIsEmpty) {
  const GpuReading other = ReadNvml({HEED_FAKE_NVML}, "0000:00:00.0");
  EXPECT_EQ(other.driver, "580.159.04");
  EXPECT_EQ(other.missing, "nvmlDeviceGetHandleByPciBusId_v2 of NVML gave 6");
  EXPECT_FALSE(other.sensors.power_w.has_value());
  const GpuReading none = ReadNvml({"/nowhere/a.so", "/nowhere/b.so"}, "0000:3b:00.0");
  EXPECT_EQ(none.missing, "NVML was not found: /nowhere/a.so /nowhere/b.so");
}
#endif

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
  EXPECT_FALSE(json.contains("missing"));
  gpu.missing = "NVML was not found";
  EXPECT_EQ(GpuJson(gpu).at("missing"), "NVML was not found");
}

}  // namespace
}  // namespace heed::bench
