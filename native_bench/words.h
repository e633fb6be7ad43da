// Lists of words separated by one space, as the registry writes them.
#ifndef HEED_NATIVE_BENCH_WORDS_H_
#define HEED_NATIVE_BENCH_WORDS_H_

#include <algorithm>
#include <string_view>
#include <vector>

namespace heed::bench {

inline std::vector<std::string_view> SplitWords(std::string_view list) {
  std::vector<std::string_view> words;
  while (!list.empty()) {
    const size_t end = std::min(list.find(' '), list.size());
    if (end > 0) words.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return words;
}

inline bool HasWord(std::string_view list, std::string_view word) {
  const std::vector<std::string_view> words = SplitWords(list);
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace heed::bench

#endif  // HEED_NATIVE_BENCH_WORDS_H_
