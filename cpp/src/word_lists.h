// Lists of words as text, which rows of the registry are made of.
#ifndef HEED_SRC_WORD_LISTS_H_
#define HEED_SRC_WORD_LISTS_H_

#include <algorithm>
#include <string_view>

namespace heed {

// Takes the first word off, with the mark of optional inputs that may be part of it.
inline std::string_view NextWord(std::string_view& words, char separator = ' ') {
  const size_t end = std::min(words.find(separator), words.size());
  const std::string_view word = words.substr(0, end);
  words.remove_prefix(std::min(end + 1, words.size()));
  return word;
}

// Whether the word is in the list, there marked as optional ("bias?") or not.
inline bool HasWord(std::string_view words, std::string_view word, char separator = ' ') {
  while (!words.empty()) {
    std::string_view next = NextWord(words, separator);
    if (next.ends_with('?')) next.remove_suffix(1);
    if (next == word) return true;
  }
  return false;
}

}  // namespace heed

#endif  // HEED_SRC_WORD_LISTS_H_
