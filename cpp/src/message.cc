#include "src/message.h"

#include <cmath>
#include <cstdint>

namespace heed {
namespace {

// A number with six significant digits, as %g shows it; the last one may be off by one. A stream or
// printf would bring locales and decimal arithmetic of their own into the WebAssembly files.
void AppendNumber(std::string& text, double number) {
  if (std::isnan(number)) {
    text += "nan";
    return;
  }
  if (std::signbit(number)) text += "-";
  double size = std::abs(number);
  if (std::isinf(size)) {
    text += "inf";
    return;
  }
  int exponent = 0;  // size = digit.digits * 10^exponent
  if (size > 0) {
    for (; size >= 10; ++exponent) size /= 10;
    for (; size < 1; --exponent) size *= 10;
  }
  int64_t digits = static_cast<int64_t>(size * 100000 + 0.5);
  if (digits >= 1000000) {
    digits /= 10;
    ++exponent;
  }
  int count = 6;
  for (; count > 1 && digits % 10 == 0; --count) digits /= 10;
  std::string shown = std::to_string(digits);
  const bool scientific = exponent < -4 || exponent >= 6;
  const int point = scientific ? 1 : exponent + 1;  // digits before the point
  if (point <= 0) {
    shown.insert(0, static_cast<size_t>(-point), '0');
    shown.insert(0, "0.");
  } else if (point >= count) {
    shown.append(static_cast<size_t>(point - count), '0');
  } else {
    shown.insert(static_cast<size_t>(point), ".");
  }
  text += shown;
  if (!scientific) return;
  text += exponent < 0 ? "e-" : "e+";
  const std::string power = std::to_string(std::abs(exponent));
  if (power.size() < 2) text += "0";
  text += power;
}

}  // namespace

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
    case Kind::kNumber:
      AppendNumber(text, number_);
      return;
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
