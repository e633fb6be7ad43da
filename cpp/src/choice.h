// Parameters that are words, as what the words stand for.
#ifndef HEED_SRC_CHOICE_H_
#define HEED_SRC_CHOICE_H_

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "src/request_reader.h"

namespace heed {

template <class T>
struct Choice {
  const char* word;
  T value;
};

// Which of the words is given, counted from 0; nothing when the parameter is absent. Throws
// Error(kOption) for another word, and for absence if one is `required`.
std::optional<size_t> FindWord(const RequestReader& reader, std::string_view name,
                               std::span<const char* const> words, bool required);

// What the given word stands for; nothing when the parameter is absent. Throws Error(kOption) for
// another word.
template <class T, size_t kCount>
std::optional<T> ReadChoice(const RequestReader& reader, std::string_view name,
                            const Choice<T> (&choices)[kCount], bool required = false) {
  std::array<const char*, kCount> words;
  for (size_t n = 0; n < kCount; ++n) words[n] = choices[n].word;
  const std::optional<size_t> found = FindWord(reader, name, words, required);
  if (!found) return {};
  return choices[*found].value;
}

// The same for a parameter without a default.
template <class T, size_t kCount>
T ReadRequiredChoice(const RequestReader& reader, std::string_view name,
                     const Choice<T> (&choices)[kCount]) {
  return *ReadChoice(reader, name, choices, true);
}

}  // namespace heed

#endif  // HEED_SRC_CHOICE_H_
