// Parsers of comma-separated lists: the pure half of options.h.
#include <algorithm>
#include <charconv>
#include <iterator>

#include "heed/error.h"
#include "native_bench/options.h"

namespace heed::bench {
namespace {

[[noreturn]] void Refuse(std::string_view flag, std::string_view item, const char* expectation) {
  throw Error(ErrorCode::kOption,
              std::string(flag) + ": '" + std::string(item) + "' is not " + expectation);
}

int64_t ParseCount(std::string_view flag, std::string_view item) {
  // Above this no problem fits in memory, and products of extents stay far from overflow.
  constexpr int64_t kLargest = int64_t{1} << 24;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), value);
  if (error != std::errc() || end != item.data() + item.size() || value < 1 || value > kLargest) {
    Refuse(flag, item, "a whole number from 1 to 16777216");
  }
  return value;
}

// Parses "a" as {a, a} and "a<separator>b" as {a, b}.
std::pair<int64_t, int64_t> ParsePair(std::string_view flag, std::string_view item,
                                      char separator) {
  const size_t split = item.find(separator);
  const int64_t first = ParseCount(flag, item.substr(0, split));
  if (split == std::string_view::npos) return {first, first};
  return {first, ParseCount(flag, item.substr(split + 1))};
}

}  // namespace

uint64_t ParseSeed(std::string_view flag, std::string_view text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size()) {
    Refuse(flag, text, "a whole number from 0 to 18446744073709551615");
  }
  return seed;
}

std::vector<std::string> ParseNames(std::string_view flag, std::string_view text) {
  std::vector<std::string> items;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    if (item.empty()) Refuse(flag, item, "an item of a comma-separated list");
    items.emplace_back(item);
    if (comma == std::string_view::npos) return items;
    text.remove_prefix(comma + 1);
  }
}

std::vector<int64_t> ParseCounts(std::string_view flag, std::string_view text) {
  std::vector<int64_t> counts;
  for (const std::string& item : ParseNames(flag, text)) counts.push_back(ParseCount(flag, item));
  return counts;
}

std::vector<Lengths> ParseLengths(std::string_view flag, std::string_view text) {
  std::vector<Lengths> lengths;
  for (const std::string& item : ParseNames(flag, text)) {
    const auto [q_len, kv_len] = ParsePair(flag, item, 'x');
    lengths.push_back({q_len, kv_len});
  }
  return lengths;
}

std::vector<Heads> ParseHeads(std::string_view flag, std::string_view text) {
  std::vector<Heads> heads;
  for (const std::string& item : ParseNames(flag, text)) {
    const auto [num_heads, num_kv_heads] = ParsePair(flag, item, ':');
    if (num_heads % num_kv_heads != 0) {
      Refuse(flag, item, "num_heads:num_kv_heads with the first a multiple of the second");
    }
    heads.push_back({num_heads, num_kv_heads});
  }
  return heads;
}

std::vector<DType> ParseDTypes(std::string_view flag, std::string_view text) {
  std::vector<DType> dtypes;
  for (const std::string& item : ParseNames(flag, text)) {
    constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                                DType::kFloat8E4M3};
    const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                     [&](DType dtype) { return item == DTypeName(dtype); });
    if (found == std::end(kTypes)) Refuse(flag, item, "float32, float16, bfloat16 or float8_e4m3");
    dtypes.push_back(*found);
  }
  return dtypes;
}

std::vector<Mask> ParseMasks(std::string_view flag, std::string_view text) {
  if (text == "no") return {Mask::kFull};
  if (text == "yes") return {Mask::kCausal};
  if (text == "both") return {Mask::kFull, Mask::kCausal};
  Refuse(flag, text, "no, yes or both");
}

}  // namespace heed::bench
