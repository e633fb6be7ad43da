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
  std::string bus_id;   // "0000:3b:00.0"
  std::string driver;   // "580.65.06"
  std::string runtime;  // of CUDA, "13.0"
  std::string compute_capability;
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  std::optional<double> max_sm_mhz;
  std::optional<double> power_limit_w;
  GpuSensors before, after;  // the rows
  std::string missing;       // as in a GpuReading
};

// What the driver says of a device now.
struct GpuReading {
  std::string driver;
  std::optional<double> max_sm_mhz;
  std::optional<double> power_limit_w;
  GpuSensors sensors;
  std::string missing;  // why sensors and limits are absent; empty when they were read
};

// Asks the driver about the device at a place on the PCI bus ("0000:3b:00.0"). Takes well below a
// millisecond, but tens of them at first.
GpuReading ReadGpu(const std::string& bus_id);

// The driver's version in the text of /proc/driver/nvidia/version; empty when there is none.
std::string ParseDriverVersion(std::string_view text);

// {sm_mhz, memory_mhz, power_w, temperature_c}, without what is absent.
nlohmann::json SensorsJson(const GpuSensors& sensors);
nlohmann::json GpuJson(const Gpu& gpu);

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_GPU_H_
