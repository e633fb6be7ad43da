#include "native_bench/machine.h"

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <thread>

#include "native_bench/build_info.h"

#if defined(__unix__) || defined(__APPLE__)
#include <sys/utsname.h>
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif

namespace heed::bench {
namespace {

// The first line of a file; empty when it cannot be read.
std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string Trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The entries of processor 0.
std::map<std::string, std::string> CpuInfo() {
  std::map<std::string, std::string> entries;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos) {
      entries.emplace(Trimmed(line.substr(0, colon)), Trimmed(line.substr(colon + 1)));
    }
  }
  return entries;
}

std::string CpuModel() {
  std::map<std::string, std::string> info = CpuInfo();
  std::string model = info["model name"];
  if (!info["cpu family"].empty()) {
    model += " (family " + info["cpu family"] + ", model " + info["model"] + ")";
  }
  return model;
}

// "512K" or "32M" as bytes.
int64_t ParseSize(const std::string& text) {
  const int64_t number = std::strtoll(text.c_str(), nullptr, 10);
  if (text.ends_with('K')) return number << 10;
  if (text.ends_with('M')) return number << 20;
  return number;
}

std::vector<Cache> Caches() {
  std::vector<Cache> caches;
  for (int index = 0;; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string level = FirstLine(folder + "level");
    if (level.empty()) return caches;
    const std::string type = FirstLine(folder + "type");
    const char* suffix = type == "Data" ? "d" : type == "Instruction" ? "i" : "";
    caches.push_back({"L" + level + suffix, ParseSize(FirstLine(folder + "size"))});
  }
}

std::string SystemName() {
#if defined(__unix__) || defined(__APPLE__)
  utsname names;
  if (uname(&names) == 0) {
    return std::string(names.sysname) + " " + names.release + " " + names.machine;
  }
#endif
  return "";
}

int UsableCores() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

int64_t MemoryBytes() {
#if defined(__unix__) && defined(_SC_PHYS_PAGES)
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
#else
  return 0;
#endif
}

double LoadAverage() {
#if defined(__unix__) || defined(__APPLE__)
  double load = 0;
  if (getloadavg(&load, 1) == 1) return load;
#endif
  return 0;
}

std::string DateNow() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char text[32] = "";
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

}  // namespace

Machine DescribeMachine() {
  return {.system = SystemName(),
          .cpu_model = CpuModel(),
          .cores = UsableCores(),
          .caches = Caches(),
          .governor = FirstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
          .memory_bytes = MemoryBytes(),
          .load_average = LoadAverage(),
          .date = DateNow()};
}

Build DescribeBuild() {
  return {.compiler = kBuildCompiler,
          .flags = kBuildFlags,
          .build_type = kBuildType,
          .commit = kBuildCommit};
}

}  // namespace heed::bench
