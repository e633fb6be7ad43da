#include "src/choice.h"

#include <string>

#include "src/message.h"

namespace heed {

std::optional<size_t> FindWord(const RequestReader& reader, std::string_view name,
                               std::span<const char* const> words, bool required) {
  const std::optional<std::string> given = reader.Word(name);
  if (!given && !required) return {};
  std::string known;
  for (size_t n = 0; n < words.size(); ++n) {
    if (given && *given == words[n]) return n;
    known += Join(n == 0 ? "\"{}\"" : ", \"{}\"", {words[n]});
  }
  if (given) {
    Fail(ErrorCode::kOption, "{} = \"{}\"; expected one of {}", {name, *given, known});
  }
  Fail(ErrorCode::kOption, "{} is missing: it must be one of {}, there is no default",
       {name, known});
}

}  // namespace heed
