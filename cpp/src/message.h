// Texts of errors: a format in which each {} stands for a part. Call sites list the parts, and all
// the code that makes a text of them exists once: WebAssembly files are made of such call sites.
#ifndef HEED_SRC_MESSAGE_H_
#define HEED_SRC_MESSAGE_H_

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "heed/error.h"
#include "heed/tensor.h"
#include "src/message.h"

namespace heed {

// A text, a number or extents, which must outlive it.
class Part {
 public:
  Part(const char* text) : kind_(Kind::kText), data_(text) {}
  Part(std::string_view text)
      : kind_(Kind::kView), data_(text.data()), whole_(static_cast<int64_t>(text.size())) {}
  Part(const std::string& text) : Part(std::string_view(text)) {}
  template <std::integral T>
  Part(T number) : kind_(Kind::kWhole), whole_(static_cast<int64_t>(number)) {}
  Part(double number) : kind_(Kind::kNumber), number_(number) {}      // "1e-39", not "0.000000"
  Part(const Extents& shape) : kind_(Kind::kShape), data_(&shape) {}  // "[1, 2, 3, 4]"

  void AppendTo(std::string& text) const;

 private:
  enum class Kind : uint8_t { kText, kView, kWhole, kNumber, kShape };
  Kind kind_;
  const void* data_ = nullptr;
  union {
    int64_t whole_;
    double number_;
  };
};

// Join("{} keys, expected {}", {4, 7}) is "4 keys, expected 7".
std::string Join(const char* format, std::initializer_list<Part> parts);

// Throws Error.
[[noreturn]] void Fail(ErrorCode code, const char* format, std::initializer_list<Part> parts);
[[noreturn]] void Fail(ErrorCode code, const char* message);
[[noreturn]] void Fail(ErrorCode code, const std::string& message);

}  // namespace heed

#endif  // HEED_SRC_MESSAGE_H_
