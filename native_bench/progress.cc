#include "native_bench/progress.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace heed::bench {

std::string DurationText(double seconds) {
  const long whole = std::lround(seconds);
  std::array<char, 32> text;
  if (whole < 60) {
    std::snprintf(text.data(), text.size(), "%ld s", whole);
  } else if (whole < 3600) {
    std::snprintf(text.data(), text.size(), "%ld:%02ld min", whole / 60, whole % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%ld:%02ld h", whole / 3600, whole / 60 % 60);
  }
  return text.data();
}

std::string ProgressLine(const std::string& what, size_t done, size_t total,
                         double elapsed_seconds) {
  std::string line = std::to_string(done) + "/" + std::to_string(total) + " " + what;
  if (done == 0) return line;
  const double left =
      elapsed_seconds / static_cast<double>(done) * static_cast<double>(total - done);
  return line + ", " + DurationText(left) + " left";
}

std::string KeptLine(const std::string& path, size_t kept, size_t total) {
  if (path.empty() || kept == 0) return "";
  return "heed-bench: " + path + " holds " + std::to_string(kept) + " of " + std::to_string(total) +
         " cases\n";
}

}  // namespace heed::bench
