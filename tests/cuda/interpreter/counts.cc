#include "counts.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>
#include <utility>

namespace heed::interpreter {
namespace {

// The opcode without its guard and types: "@%p1 ld.shared.v2.f32 ..." is "ld.shared".
std::string OpcodeOf(std::string_view text) {
  if (text.starts_with('@')) text.remove_prefix(std::min(text.find(' ') + 1, text.size()));
  text = text.substr(0, text.find_first_of(" \t;"));
  const size_t first = text.find('.');
  const bool is_access = text.starts_with("ld") || text.starts_with("st");
  const size_t end = is_access && first != text.npos ? text.find('.', first + 1) : first;
  return std::string(text.substr(0, end));
}

}  // namespace

std::string CountsText(const Program& program, const std::vector<uint64_t>& counts,
                       uint64_t warps) {
  std::map<std::string, uint64_t> of_opcodes;
  uint64_t total = 0, places = 0;
  for (size_t n = 0; n < counts.size(); ++n) {
    of_opcodes[OpcodeOf(program.code[n].text)] += counts[n];
    total += counts[n];
    places += counts[n] > 0;
  }
  std::vector<std::pair<std::string, uint64_t>> sorted(of_opcodes.begin(), of_opcodes.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  char line[160];
  std::snprintf(line, sizeof(line), "%.1f instructions a warp at %llu of %zu places, %llu warps: ",
                static_cast<double>(total) / static_cast<double>(warps),
                static_cast<unsigned long long>(places), counts.size(),
                static_cast<unsigned long long>(warps));
  std::string result = line + program.name + "\n";
  for (const auto& [opcode, count] : sorted) {
    if (count == 0) continue;
    std::snprintf(line, sizeof(line), "  %12.1f %s\n",
                  static_cast<double>(count) / static_cast<double>(warps), opcode.c_str());
    result += line;
  }
  return result;
}

}  // namespace heed::interpreter
