#include "native_bench/gpu.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

namespace heed::bench {
namespace {

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::vector<std::string_view> Fields(std::string_view line) {
  std::vector<std::string_view> fields;
  for (;;) {
    const size_t comma = line.find(',');
    fields.push_back(Trimmed(line.substr(0, comma)));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

// Nothing for "[N/A]", "[Not Supported]" and whatever else is no number.
std::optional<double> Number(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::optional<GpuReading> ParseGpuReading(std::string_view line) {
  const std::vector<std::string_view> fields = Fields(line);
  static const size_t kCount = Fields(kGpuQuery).size();
  if (fields.size() != kCount || fields[0].empty()) return std::nullopt;
  return GpuReading{.name = std::string(fields[0]),
                    .driver = std::string(fields[1]),
                    .max_sm_mhz = Number(fields[2]),
                    .power_limit_w = Number(fields[3]),
                    .sensors = {.sm_mhz = Number(fields[4]),
                                .memory_mhz = Number(fields[5]),
                                .power_w = Number(fields[6]),
                                .temperature_c = Number(fields[7])}};
}

std::optional<GpuReading> ReadGpu(int index) {
#if defined(__unix__)
  const std::string command = "nvidia-smi --id=" + std::to_string(index) +
                              " --format=csv,noheader,nounits --query-gpu=" + kGpuQuery +
                              " 2>/dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::array<char, 512> line{};
  const bool read = std::fgets(line.data(), line.size(), pipe) != nullptr;
  const bool succeeded = pclose(pipe) == 0;
  if (read && succeeded) return ParseGpuReading(line.data());
#else
  static_cast<void>(index);
#endif
  return std::nullopt;
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
  if (gpu.max_sm_mhz.has_value()) object["max_sm_mhz"] = *gpu.max_sm_mhz;
  if (gpu.power_limit_w.has_value()) object["power_limit_w"] = *gpu.power_limit_w;
  return object;
}

}  // namespace heed::bench
