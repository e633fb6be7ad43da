#include "native_bench/memory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "heed/scratch.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace heed::bench {
namespace {

// A line of /proc/self/status such as "VmHWM:     1234 kB", in bytes.
std::optional<int64_t> StatusBytes(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(field + ":")) {
      return std::strtoll(line.c_str() + field.size() + 1, nullptr, 10) * 1024;
    }
  }
  return std::nullopt;
}

// Lowers the peak to what is resident now. False where that is not allowed.
bool ResetPeak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5";
  file.close();
  return !file.fail();
}

}  // namespace

HighWater::HighWater() {
  SetKeptScratch(0);
  SetKeptScratch(kDefaultKeptScratch);
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
  if (ResetPeak()) before_ = StatusBytes("VmRSS");
}

std::optional<int64_t> HighWater::Bytes() const {
  const std::optional<int64_t> peak = StatusBytes("VmHWM");
  if (!before_.has_value() || !peak.has_value()) return std::nullopt;
  return std::max<int64_t>(0, *peak - *before_);
}

}  // namespace heed::bench
