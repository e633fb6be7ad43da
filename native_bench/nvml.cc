#include "native_bench/nvml.h"

#include <optional>

#if defined(__linux__)
#include <dlfcn.h>
#endif

namespace heed::bench {
namespace {

constexpr char kName[] = "libnvidia-ml.so.1";

}  // namespace

std::vector<std::string> NvmlPaths(std::string_view maps) {
  std::vector<std::string> paths = {kName};
  const size_t driver = maps.find("/libcuda.so");
  if (driver != maps.npos) {
    const std::string_view line = maps.substr(0, driver + 1);
    const size_t start = line.find('/', line.rfind('\n') + 1);  // npos + 1: the first line
    paths.push_back(std::string(line.substr(start)) + kName);
  }
  for (const char* folder : {"/usr/lib64-nvidia/", "/usr/local/nvidia/lib64/", "/usr/lib/wsl/lib/"})
    paths.push_back(std::string(folder) + kName);
  return paths;
}

#if defined(__linux__)

namespace {

// Numbers of nvml.h, which not every toolkit has.
constexpr int kSuccess = 0, kSmClock = 1, kMemoryClock = 2, kOfGpu = 0;

class Nvml {
 public:
  explicit Nvml(void* library) : library_(library) {}

  // The status of NVML, or -1 for a function that it does not have.
  template <class... Arguments>
  int Call(const char* name, Arguments... arguments) const {
    auto* function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name));
    return function == nullptr ? -1 : function(arguments...);
  }
  // A number that a function writes to its last argument.
  template <class... Arguments>
  std::optional<double> Ask(const char* name, Arguments... arguments) const {
    unsigned value = 0;
    if (Call(name, arguments..., &value) != kSuccess) return std::nullopt;
    return value;
  }
  std::string Driver() const {
    char text[80] = "";  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
    const unsigned bytes = sizeof(text);
    return Call("nvmlSystemGetDriverVersion", &text[0], bytes) == kSuccess ? text : "";
  }

 private:
  void* library_;
};

// Never closed.
void* Open(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW)) return library;
  }
  return nullptr;
}

std::string NotFound(const std::vector<std::string>& paths) {
  std::string text = "NVML was not found:";
  for (const std::string& path : paths) text += " " + path;
  return text;
}

std::optional<double> Thousandth(std::optional<double> value) {
  if (value.has_value()) *value /= 1000;
  return value;
}

}  // namespace

GpuReading ReadNvml(const std::vector<std::string>& paths, const std::string& bus_id) {
  GpuReading reading;
  void* const library = Open(paths);
  if (library == nullptr) {
    reading.missing = NotFound(paths);
    return reading;
  }
  const Nvml nvml(library);
  const auto failed = [&](const char* name, int status) {
    if (status == kSuccess) return false;
    reading.missing = std::string(name) + " of NVML gave " + std::to_string(status);
    return true;
  };
  if (failed("nvmlInit_v2", nvml.Call("nvmlInit_v2"))) return reading;
  reading.driver = nvml.Driver();
  void* device = nullptr;
  constexpr char kFind[] = "nvmlDeviceGetHandleByPciBusId_v2";
  if (failed(kFind, nvml.Call(kFind, bus_id.c_str(), &device))) return reading;
  reading.max_sm_mhz = nvml.Ask("nvmlDeviceGetMaxClockInfo", device, kSmClock);
  reading.power_limit_w = Thousandth(nvml.Ask("nvmlDeviceGetPowerManagementLimit", device));
  reading.sensors.sm_mhz = nvml.Ask("nvmlDeviceGetClockInfo", device, kSmClock);
  reading.sensors.memory_mhz = nvml.Ask("nvmlDeviceGetClockInfo", device, kMemoryClock);
  reading.sensors.power_w = Thousandth(nvml.Ask("nvmlDeviceGetPowerUsage", device));
  reading.sensors.temperature_c = nvml.Ask("nvmlDeviceGetTemperature", device, kOfGpu);
  return reading;
}

#else

GpuReading ReadNvml(const std::vector<std::string>&, const std::string&) {
  GpuReading reading;
  reading.missing = "sensors are read on Linux alone";
  return reading;
}

#endif

}  // namespace heed::bench
