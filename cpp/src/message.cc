#include "src/message.h"

#include <cstdio>

namespace heed {

// A stream would bring the whole locale machinery into the WebAssembly files.
void Part::AppendTo(std::string& text) const {
  switch (kind_) {
    case Kind::kText:
      text += static_cast<const char*>(data_);
      return;
    case Kind::kView:
      text.append(static_cast<const char*>(data_), static_cast<size_t>(whole_));
      return;
    case Kind::kWhole:
      text += std::to_string(whole_);
      return;
    case Kind::kNumber: {
      char digits[32];
      std::snprintf(digits, sizeof(digits), "%g", number_);
      text += digits;
      return;
    }
    case Kind::kShape: {
      const char* comma = "[";
      for (const int64_t extent : *static_cast<const Extents*>(data_)) {
        text += comma;
        text += std::to_string(extent);
        comma = ", ";
      }
      text += "]";
      return;
    }
  }
}

std::string Join(const char* format, std::initializer_list<Part> parts) {
  std::string text;
  const Part* part = parts.begin();
  for (const char* at = format; *at != '\0'; ++at) {
    if (at[0] == '{' && at[1] == '}' && part != parts.end()) {
      part++->AppendTo(text);
      ++at;
    } else {
      text += *at;
    }
  }
  return text;
}

void Fail(ErrorCode code, const char* format, std::initializer_list<Part> parts) {
  throw Error(code, Join(format, parts));
}
void Fail(ErrorCode code, const char* message) { throw Error(code, message); }
void Fail(ErrorCode code, const std::string& message) { throw Error(code, message); }

}  // namespace heed
