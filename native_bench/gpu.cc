#include "native_bench/gpu.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "native_bench/nvml.h"

namespace heed::bench {
namespace {

std::string TextOf(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// "580.159.04", but not "x86_64", "24" or "(Debian".
bool IsVersion(std::string_view word) {
  return word.find('.') != word.npos && word.find_first_not_of("0123456789.") == word.npos;
}

}  // namespace

std::string ParseDriverVersion(std::string_view text) {
  constexpr std::string_view kHead = "NVRM version:";
  const size_t head = text.find(kHead);
  if (head == text.npos) return {};
  std::string_view line = text.substr(head + kHead.size());
  line = line.substr(0, line.find('\n'));
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    if (IsVersion(word)) return std::string(word);
    line.remove_prefix(std::min(word.size() + 1, line.size()));
  }
  return {};
}

GpuReading ReadGpu(const std::string& bus_id) {
  static const std::vector<std::string> paths = NvmlPaths(TextOf("/proc/self/maps"));
  GpuReading reading = ReadNvml(paths, bus_id);
  if (reading.driver.empty()) {
    reading.driver = ParseDriverVersion(TextOf("/proc/driver/nvidia/version"));
  }
  return reading;
}

nlohmann::json SensorsJson(const GpuSensors& sensors) {
  nlohmann::json object = nlohmann::json::object();
  const auto put = [&](const char* name, const std::optional<double>& value) {
    if (value.has_value()) object[name] = *value;
  };
  put("sm_mhz", sensors.sm_mhz);
  put("memory_mhz", sensors.memory_mhz);
  put("power_w", sensors.power_w);
  put("temperature_c", sensors.temperature_c);
  return object;
}

nlohmann::json GpuJson(const Gpu& gpu) {
  nlohmann::json object = {{"name", gpu.name},
                           {"driver", gpu.driver},
                           {"cuda_runtime", gpu.runtime},
                           {"compute_capability", gpu.compute_capability},
                           {"multiprocessors", gpu.multiprocessors},
                           {"memory_bytes", gpu.memory_bytes},
                           {"l2_bytes", gpu.l2_bytes},
                           {"before", SensorsJson(gpu.before)},
                           {"after", SensorsJson(gpu.after)}};
  if (!gpu.missing.empty()) object["missing"] = gpu.missing;
  if (gpu.max_sm_mhz.has_value()) object["max_sm_mhz"] = *gpu.max_sm_mhz;
  if (gpu.power_limit_w.has_value()) object["power_limit_w"] = *gpu.power_limit_w;
  return object;
}

}  // namespace heed::bench
