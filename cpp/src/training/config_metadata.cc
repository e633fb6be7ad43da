#include "src/training/config_metadata.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>
#include <variant>

#include "src/message.h"

namespace heed::training {
namespace {

constexpr std::string_view kPrefix = "heed.";
// Before the names of the mechanism's parameters.
constexpr std::string_view kParam = "heed.params.";
// Makes the file known, and its form: another form gets another number.
constexpr const char* kFormat = "transformer 1";

[[noreturn]] void RefuseValue(const std::string& key, const std::string& text) {
  Fail(ErrorCode::kOption, "metadata: \"{}\" is no value of {}", {text, key});
}

// Before the bits of a number that has no short text.
constexpr std::string_view kBits = "bits:";

// All of the text as a whole number.
template <class T>
std::optional<T> WholeOf(std::string_view text) {
  T number = 0;
  const char* end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return number;
}

// Up to 15 digits and 10^22 a decimal number is one exact product or quotient (Clinger 1990). Of
// longer ones, which other programs write, the last places may differ; digits beyond the 19th do
// not matter.
constexpr size_t kMostDigits = 19;
constexpr int kExactPower = 22;

// number times 10^power, in steps that are exact by themselves.
double TimesPowerOfTen(double number, int power) {
  for (int left = std::abs(power); left > 0; left -= kExactPower) {
    double scale = 1;
    for (int n = std::min(left, kExactPower); n > 0; --n) scale *= 10;
    number = power < 0 ? number / scale : number * scale;
  }
  return number;
}

// The digits on both sides of the point times 10^power, where there are only digits.
std::optional<double> ScaledDigits(std::string digits, int power) {
  if (const size_t point = digits.find('.'); point != digits.npos) {
    digits.erase(point, 1);
    power -= static_cast<int>(digits.size() - point);
  }
  if (digits.empty() || digits.find_first_not_of("0123456789") != digits.npos) return std::nullopt;
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  if (digits.size() > kMostDigits) {
    power += static_cast<int>(digits.size() - kMostDigits);
    digits.resize(kMostDigits);
  }
  const double number = TimesPowerOfTen(static_cast<double>(*WholeOf<uint64_t>(digits)), power);
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

// The number that a decimal text is. strtod would read as the program's locale does, and libc++ has
// no from_chars of double before LLVM 20.
std::optional<double> DecimalOf(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  int power = 0;
  if (const size_t e = text.find_first_of("eE"); e != text.npos) {
    std::string_view exponent = text.substr(e + 1);
    if (exponent.starts_with('+')) exponent.remove_prefix(1);
    const std::optional<int16_t> read = WholeOf<int16_t>(exponent);
    if (!read) return std::nullopt;
    power = *read;
    text = text.substr(0, e);
  }
  const std::optional<double> number = ScaledDigits(std::string(text), power);
  return number && negative ? -*number : number;
}

// Six digits where they are the number, else its bits: every number comes back as it was. (printf
// would bring its decimal arithmetic into the WebAssembly files.)
std::string Text(double number) {
  std::string text = Join("{}", {number});
  if (DecimalOf(text) == number) return text;
  text = kBits;
  return text += std::to_string(std::bit_cast<uint64_t>(number));
}

double Number(const std::string& key, const std::string& text) {
  if (!text.starts_with(kBits)) {
    const std::optional<double> number = DecimalOf(text);
    if (!number) RefuseValue(key, text);
    return *number;
  }
  const std::optional<uint64_t> bits =
      WholeOf<uint64_t>(std::string_view(text).substr(kBits.size()));
  if (!bits) RefuseValue(key, text);
  return std::bit_cast<double>(*bits);
}

template <class T>
T Whole(const std::string& key, const std::string& text) {
  const std::optional<T> number = WholeOf<T>(text);
  if (!number) RefuseValue(key, text);
  return *number;
}

// A parameter as its kind and its value: "flag 1", "number 0.5", "word relu", "numbers 1 2".
std::string ParamText(const ParamValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "flag 1" : "flag 0";
  if (const double* number = std::get_if<double>(&value)) return Join("number {}", {Text(*number)});
  if (const auto* word = std::get_if<std::string>(&value)) return Join("word {}", {*word});
  std::string text = "numbers";
  for (const double number : std::get<std::vector<double>>(value)) {
    text += ' ';
    text += Text(number);
  }
  return text;
}

ParamValue ParamOf(const std::string& key, const std::string& text) {
  const size_t space = text.find(' ');
  const std::string kind = text.substr(0, space);
  std::string rest = space == text.npos ? "" : text.substr(space + 1);
  if (kind == "flag") return Whole<int>(key, rest) != 0;
  if (kind == "number") return Number(key, rest);
  if (kind == "word") return rest;
  if (kind != "numbers") RefuseValue(key, text);
  std::vector<double> numbers;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    numbers.push_back(Number(key, rest.substr(0, end)));
    rest.erase(0, std::min(end + 1, rest.size()));
  }
  return numbers;
}

// Passes every field to visit(key, field): one list for both directions.
template <class Config, class Visit>
void ForEachField(Config& c, const Visit& visit) {
  visit("vocabulary", c.vocabulary);
  visit("embed_dim", c.embed_dim);
  visit("num_layers", c.num_layers);
  visit("num_heads", c.num_heads);
  visit("num_kv_heads", c.num_kv_heads);
  visit("ff_dim", c.ff_dim);
  visit("max_len", c.max_len);
  visit("mechanism", c.mechanism);
  visit("causal", c.causal);
  visit("position", c.position);
  visit("rope_base", c.rope_base);
  visit("norm", c.norm);
  visit("activation", c.activation);
  visit("gated", c.gated);
  visit("bias", c.bias);
  visit("tied", c.tied);
  visit("encoder_layers", c.encoder_layers);
  visit("cross_mechanism", c.cross_mechanism);
  visit("seed", c.seed);
}

struct Writer {
  Metadata& metadata;

  void Put(const char* key, std::string text) const {
    metadata[std::string(kPrefix) + key] = std::move(text);
  }
  void operator()(const char* key, const std::string& word) const { Put(key, word); }
  void operator()(const char* key, double number) const { Put(key, Text(number)); }
  void operator()(const char* key, uint64_t seed) const { Put(key, std::to_string(seed)); }
  template <class T>
  void operator()(const char* key, const T& whole) const {
    Put(key, std::to_string(static_cast<int64_t>(whole)));
  }
};

// How many values an enumeration has, as far as files are concerned; 0 for other types.
template <class T>
constexpr int64_t kValues = 0;
template <>
constexpr int64_t kValues<bool> = 2;
template <>
constexpr int64_t kValues<ModelPosition> = 4;
template <>
constexpr int64_t kValues<Norm> = 2;
template <>
constexpr int64_t kValues<Activation> = 4;

// Takes what it reads out of the metadata.
struct Reader {
  Metadata& metadata;

  std::string Take(const std::string& key) const {
    const auto place = metadata.find(key);
    if (place == metadata.end()) Fail(ErrorCode::kOption, "metadata: {} is missing", {key});
    return metadata.extract(place).mapped();
  }
  void operator()(const char* name, std::string& word) const {
    word = Take(std::string(kPrefix) + name);
  }
  void operator()(const char* name, double& number) const {
    const std::string key = std::string(kPrefix) + name;
    number = Number(key, Take(key));
  }
  void operator()(const char* name, uint64_t& seed) const {
    const std::string key = std::string(kPrefix) + name;
    seed = Whole<uint64_t>(key, Take(key));
  }
  template <class T>
  void operator()(const char* name, T& field) const {
    const std::string key = std::string(kPrefix) + name, text = Take(key);
    const int64_t whole = Whole<int64_t>(key, text);
    if (kValues<T> != 0 && (whole < 0 || whole >= kValues<T>)) RefuseValue(key, text);
    field = static_cast<T>(whole);
  }
};

}  // namespace

Metadata ToMetadata(const TransformerOptions& config) {
  Metadata metadata = {{std::string(kPrefix) + "format", kFormat}};
  ForEachField(config, Writer{metadata});
  for (const NamedParam& param : config.params) {
    metadata[std::string(kParam) + param.name] = ParamText(param.value);
  }
  return metadata;
}

TransformerOptions FromMetadata(const Metadata& metadata) {
  Metadata rest = metadata;
  const Reader reader{rest};
  const std::string format = reader.Take(std::string(kPrefix) + "format");
  if (format != kFormat) RefuseValue("heed.format", format);
  TransformerOptions config;
  ForEachField(config, reader);
  for (const auto& [key, text] : rest) {
    if (!key.starts_with(kParam)) {
      Fail(ErrorCode::kOption, "metadata: \"{}\" is none of a heed transformer", {key});
    }
    config.params.push_back({key.substr(kParam.size()), ParamOf(key, text)});
  }
  return config;
}

}  // namespace heed::training
