// The GPU that a report comes from, and what its sensors say while it works.
#ifndef HEED_NATIVE_BENCH_GPU_H_
#define HEED_NATIVE_BENCH_GPU_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace heed::bench {

// One reading of the sensors. What the device does not tell is absent.
struct GpuSensors {
  std::optional<double> sm_mhz;
  std::optional<double> memory_mhz;
  std::optional<double> power_w;
  std::optional<double> temperature_c;
};

// What stays the same while a program runs. 0 and empty: not known.
struct Gpu {
  std::string name;
  std::string driver;   // "580.65.06"
  std::string runtime;  // of CUDA, "13.0"
  std::string compute_capability;
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  std::optional<double> max_sm_mhz;
  std::optional<double> power_limit_w;
  GpuSensors before, after;  // the rows
};

// What `nvidia-smi --query-gpu=` is asked, and a line of its answer with
// --format=csv,noheader,nounits taken apart. Nothing for a line of other fields; "[N/A]" and the
// like leave a field absent.
inline constexpr char kGpuQuery[] =
    "name,driver_version,clocks.max.sm,power.limit,clocks.sm,clocks.memory,power.draw,"
    "temperature.gpu";
struct GpuReading {
  std::string name;
  std::string driver;
  std::optional<double> max_sm_mhz;
  std::optional<double> power_limit_w;
  GpuSensors sensors;
};
std::optional<GpuReading> ParseGpuReading(std::string_view line);

// Asks nvidia-smi about device `index`. Nothing where there is none, or it fails. Takes tens of
// milliseconds.
std::optional<GpuReading> ReadGpu(int index);

// {sm_mhz, memory_mhz, power_w, temperature_c}, without what is absent.
nlohmann::json SensorsJson(const GpuSensors& sensors);
nlohmann::json GpuJson(const Gpu& gpu);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_GPU_H_
