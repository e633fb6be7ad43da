#include "src/training/safetensors_header.h"

#include <set>
#include <utility>

#include "heed/training/safetensors.h"
#include "src/message.h"

namespace heed::training {
namespace {

// Bytes of the UTF-8 sequence at the start of `text`; 0 if it is none. Overlong forms, surrogates
// and what lies beyond U+10FFFF are none.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t n) { return n < text.size() ? static_cast<uint8_t>(text[n]) : 0; };
  const auto follows = [&](size_t n) { return (byte(n) & 0xc0) == 0x80; };
  const int first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f)) return 0;
    return follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) return 0;
    return follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

void AppendUtf8(uint32_t code, std::string& to) {
  const auto put = [&](uint32_t byte) { to.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xe0 | code >> 12);
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3f));
    }
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Header Parse() {
    Header header;
    std::set<std::string> names;
    Object([&](std::string name) {
      if (!names.insert(name).second) Refuse("a name that occurs twice");
      if (name == "__metadata__") return Metadata(header);
      if (header.entries.size() == kMaxSafetensorsEntries) Refuse("more tensors than are read");
      header.entries.push_back(Entry(std::move(name)));
    });
    SkipSpace();
    if (at_ != text_.size()) Refuse("more after the object");
    return header;
  }

 private:
  [[noreturn]] void Refuse(const char* found) const {
    Fail(ErrorCode::kOption, "not a safetensors file: {} at byte {} of the header", {found, at_});
  }

  bool Accept(char c) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void Expect(char c, const char* instead) {
    if (!Accept(c)) Refuse(instead);
  }
  void SkipSpace() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }

  template <class Member>
  void Object(const Member& member) {
    Expect('{', "no object");
    if (Accept('}')) return;
    do {
      std::string name = String();
      Expect(':', "no colon");
      member(std::move(name));
    } while (Accept(','));
    Expect('}', "an object that does not end");
  }

  void Metadata(Header& header) {
    Object([&](std::string key) {
      if (header.metadata.size() == kMaxSafetensorsEntries) Refuse("more metadata than is read");
      if (!header.metadata.emplace(std::move(key), String(text_.size())).second) {
        Refuse("a key of __metadata__ that occurs twice");
      }
    });
  }

  HeaderEntry Entry(std::string name) {
    HeaderEntry entry;
    entry.name = std::move(name);
    std::set<std::string> keys;
    Object([&](const std::string& key) {
      if (!keys.insert(key).second) Refuse("a key that occurs twice");
      if (key == "dtype") {
        entry.dtype = String();
      } else if (key == "shape") {
        entry.shape = Numbers();
      } else if (key == "data_offsets") {
        entry.offsets = Numbers();
      } else {
        Refuse("an unknown key of a tensor");
      }
    });
    if (keys.size() != 3) Refuse("a tensor without dtype, shape or data_offsets");
    return entry;
  }

  std::vector<int64_t> Numbers() {
    std::vector<int64_t> numbers;
    Expect('[', "no list of numbers");
    if (Accept(']')) return numbers;
    do {
      if (numbers.size() == kMaxSafetensorsRank) Refuse("a list that is too long");
      numbers.push_back(Number());
    } while (Accept(','));
    Expect(']', "a list that does not end");
    return numbers;
  }

  // A whole number that is not negative: 0 or digits that do not start with it.
  int64_t Number() {
    SkipSpace();
    const size_t first = at_;
    int64_t number = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (__builtin_mul_overflow(number, 10, &number) ||
          __builtin_add_overflow(number, text_[at_] - '0', &number)) {
        Refuse("a number that is too large");
      }
    }
    if (at_ == first) Refuse("no whole number");
    if (text_[first] == '0' && at_ > first + 1) Refuse("a number that starts with 0");
    return number;
  }

  std::string String(size_t most = kMaxSafetensorsName) {
    Expect('"', "no text");
    std::string string;
    while (true) {
      if (at_ == text_.size()) Refuse("a text that does not end");
      if (string.size() > most) Refuse("a text that is too long");
      const char c = text_[at_];
      if (c == '"') break;
      if (c == '\\') {
        ++at_;
        Escape(string);
        continue;
      }
      const size_t length = SequenceLength(text_.substr(at_));
      if (length == 0 || static_cast<uint8_t>(c) < 0x20) Refuse("a byte that no text may hold");
      string.append(text_.substr(at_, length));
      at_ += length;
    }
    ++at_;
    return string;
  }

  void Escape(std::string& to) {
    constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
    if (at_ == text_.size()) Refuse("a text that does not end");
    const char name = text_[at_++];
    const size_t known = kNames.find(name);
    if (known != kNames.npos) return to.push_back(kValues[known]);
    if (name != 'u') Refuse("an unknown escape");
    uint32_t code = Hex();
    if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
      at_ += 2;
      const uint32_t low = Hex();
      if (low < 0xdc00 || low > 0xdfff) Refuse("half a surrogate pair");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xd800 && code <= 0xdfff) {
      Refuse("half a surrogate pair");
    }
    AppendUtf8(code, to);
  }

  uint32_t Hex() {
    constexpr std::string_view kDigits = "0123456789abcdef";
    uint32_t code = 0;
    for (int n = 0; n < 4; ++n, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : ' ';
      const size_t digit = kDigits.find(c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c);
      if (digit == kDigits.npos) Refuse("an escape without four digits");
      code = code * 16 + static_cast<uint32_t>(digit);
    }
    return code;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Header ParseHeader(std::string_view text) { return Parser(text).Parse(); }

std::string Quoted(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted.push_back('\\');
      quoted.push_back(c);
    } else if (static_cast<uint8_t>(c) < 0x20) {
      quoted += "\\u00";
      quoted.push_back(kDigits[static_cast<uint8_t>(c) >> 4]);
      quoted.push_back(kDigits[c & 15]);
    } else {
      quoted.push_back(c);
    }
  }
  return quoted + "\"";
}

}  // namespace heed::training
