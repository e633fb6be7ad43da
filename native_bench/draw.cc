#include "native_bench/draw.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <random>
#include <utility>

#include "heed/examples.h"
#include "native_bench/words.h"

namespace heed::bench {
namespace {

using Generator = std::mt19937_64;

const Example* FindExample(std::string_view id) {
  for (const Example& example : Examples()) {
    if (example.id == id) return &example;
  }
  return nullptr;
}

// The number that is all of the text, or nothing.
bool ReadNumber(std::string_view text, double& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// A number, or the extent of a symbol with or without '?'.
int64_t Factor(std::string_view word, const Extent& extents) {
  if (word.ends_with('?')) word.remove_suffix(1);
  double number = 0;
  if (ReadNumber(word, number)) return static_cast<int64_t>(number);
  const auto found = extents.find(word);
  if (found != extents.end()) return found->second;
  throw Error(ErrorCode::kUnsupported,
              "examples.inc gives no extent to the symbol '" + std::string(word) + "'");
}

int64_t Product(std::string_view value, const Extent& extents) {
  int64_t product = 1;
  for (std::string_view word : SplitWords(value)) {
    if (!word.starts_with('/')) {
      product *= Factor(word, extents);
      continue;
    }
    const int64_t divisor = Factor(word.substr(1), extents);
    product = (product + divisor - 1) / divisor;
  }
  return product;
}

// "name=value" into its two parts.
std::pair<std::string_view, std::string_view> SplitPair(std::string_view word) {
  const size_t equals = word.find('=');
  return {word.substr(0, equals), word.substr(equals + 1)};
}

// The symbols of a shape row: those before the first alternative.
std::vector<std::string_view> FirstShape(const Input& input) {
  return SplitWords(input.shape.substr(0, std::min(input.shape.find(" | "), input.shape.size())));
}

bool Mentions(const Mechanism& mechanism, std::string_view symbol) {
  for (std::string_view name : ExampleInputs(mechanism)) {
    for (const Input& input : Inputs()) {
      if (input.name != name) continue;
      const auto shape = FirstShape(input);
      if (std::find(shape.begin(), shape.end(), symbol) != shape.end()) return true;
    }
  }
  return false;
}

void DrawNormals(float* data, int64_t count, float scale, Generator& generator) {
  std::normal_distribution<float> normal;
  std::generate_n(data, count, [&] { return scale * normal(generator); });
}

void DrawFloats(const Input& input, const OwnedTensor& tensor, Generator& generator) {
  float* data = tensor.floats();
  const int64_t count = tensor.size();
  if (input.draw == "zero") {
    std::fill_n(data, count, 0.0f);
  } else if (input.draw == "slopes") {
    for (int64_t h = 0; h < count; ++h) {
      data[h] = std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(count));
    }
  } else {
    const float columns = tensor.shape().empty() ? 1 : static_cast<float>(tensor.shape().back());
    DrawNormals(data, count, input.draw == "weight" ? 1 / std::sqrt(columns) : 1, generator);
  }
  if (input.draw == "positive") {
    std::transform(data, data + count, data, [](float x) { return std::exp(0.3f * x); });
  }
  if (input.draw == "fraction") {
    std::transform(data, data + count, data, [](float x) { return 1 / (1 + std::exp(-x)); });
  }
  if (input.draw == "log_gate") {
    std::transform(data, data + count, data, [](float x) { return -0.2f * std::abs(x); });
  }
}

// Pairs of whole numbers below `first` and `second`.
void DrawPairs(const OwnedTensor& tensor, int64_t first, int64_t second, Generator& generator) {
  for (int64_t n = 0; n < tensor.size(); ++n) {
    const uint64_t limit = static_cast<uint64_t>(n % 2 == 0 ? first : second);
    tensor.ints()[n] = static_cast<int32_t>(generator() % limit);
  }
}

void DrawInts(const Input& input, const OwnedTensor& tensor, const Extent& extents,
              Generator& generator) {
  int32_t* data = tensor.ints();
  const int64_t q_len = Factor("q_len", extents), kv_len = Factor("kv_len", extents);
  if (input.draw == "edges") return DrawPairs(tensor, kv_len, q_len, generator);
  if (input.draw == "pairs") return DrawPairs(tensor, q_len, kv_len, generator);
  if (input.draw == "index:len") {  // positions count up
    for (int64_t n = 0; n < tensor.size(); ++n) {
      data[n] = static_cast<int32_t>(n % Factor("len", extents));
    }
  } else if (input.draw.starts_with("index:")) {
    const uint64_t limit = static_cast<uint64_t>(Factor(input.draw.substr(6), extents));
    std::generate_n(data, tensor.size(), [&] { return static_cast<int32_t>(generator() % limit); });
  } else {
    const int64_t value = input.draw == "lengths" ? kv_len : 0;
    std::fill_n(data, tensor.size(), static_cast<int32_t>(value));
  }
}

DType TypeOf(const Input& input) {
  if (input.kind == "int") return DType::kInt32;
  return input.kind == "keep" ? DType::kUint8 : DType::kFloat32;
}

ParamValue Value(std::string_view text, const Extent& extents) {
  double number = 0;
  if (ReadNumber(text, number)) return number;
  if (text.starts_with("sqrt:")) {
    return std::sqrt(static_cast<double>(Factor(text.substr(5), extents)));
  }
  const auto found = extents.find(text);
  if (found != extents.end()) return static_cast<double>(found->second);
  return std::string(text);
}

}  // namespace

Extent ExtentsOf(const Case& c) {
  const Mechanism& mechanism = *FindMechanism(c.mechanism);
  if (c.lengths.q_len != c.lengths.kv_len && Mentions(mechanism, "len")) {
    throw Error(ErrorCode::kUnsupported, c.mechanism + " has one length: q_len must be kv_len");
  }
  Extent extents = {
      {"batch", c.batch},
      {"num_heads", c.heads.num_heads},
      {"num_kv_heads", c.heads.num_kv_heads},
      {"q_len", c.lengths.q_len},
      {"kv_len", c.lengths.kv_len},
      {"head_dim", c.head_dim},
  };
  for (const ExampleExtent& row : ExampleExtents()) {
    const bool own = row.symbol == "head_dim_v" && c.head_dim_v > 0;
    extents[std::string(row.symbol)] = own ? c.head_dim_v : Product(row.value, extents);
  }
  if (const Example* example = FindExample(c.mechanism)) {
    for (std::string_view word : SplitWords(example->extents)) {
      const auto [symbol, value] = SplitPair(word);
      extents[std::string(symbol)] = Factor(value, extents);
    }
  }
  return extents;
}

OwnedTensor::OwnedTensor(std::string name, DType dtype, std::vector<int64_t> shape)
    : name_(std::move(name)), dtype_(dtype), shape_(std::move(shape)) {
  const size_t bytes = static_cast<size_t>(size() * ElementSize(dtype));
  data_.reset(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{64})));
}

int64_t OwnedTensor::size() const {
  int64_t size = 1;
  for (int64_t extent : shape_) size *= extent;
  return size;
}

AnyTensor OwnedTensor::any() const { return ContiguousTensor(dtype_, data_.get(), shape_); }

const Input& FindInput(std::string_view name) {
  const auto rows = Inputs();
  return *std::find_if(rows.begin(), rows.end(),
                       [&](const Input& row) { return row.name == name; });
}

OwnedTensor DrawInput(const Input& input, const Extent& extents, uint64_t seed) {
  std::vector<int64_t> shape;
  for (std::string_view symbol : FirstShape(input)) shape.push_back(Factor(symbol, extents));
  OwnedTensor tensor(std::string(input.name), TypeOf(input), std::move(shape));
  // Inputs of one problem differ, and an input is the same whichever others there are.
  std::seed_seq sequence(input.name.begin(), input.name.end());
  std::array<uint32_t, 2> words{};
  sequence.generate(words.begin(), words.end());
  Generator generator(seed ^ (static_cast<uint64_t>(words[0]) << 32 | words[1]));
  if (input.kind == "int") {
    DrawInts(input, tensor, extents, generator);
  } else if (input.kind == "keep") {
    std::generate_n(tensor.bytes(), tensor.size(),
                    [&] { return static_cast<uint8_t>(generator() % 10 < 7); });
  } else {
    DrawFloats(input, tensor, generator);
  }
  return tensor;
}

OwnedTensor StoredAs(const OwnedTensor& floats, DType dtype) {
  OwnedTensor stored(floats.name(), dtype, floats.shape());
  float* values = floats.floats();
  uint16_t* bits = stored.halves();
  for (int64_t n = 0; n < floats.size(); ++n) {
    if (dtype == DType::kFloat16) {
      const Float16 half = ToFloat16(values[n]);
      bits[n] = half.bits;
      values[n] = ToFloat(half);
    } else {
      const BFloat16 half = ToBFloat16(values[n]);
      bits[n] = half.bits;
      values[n] = ToFloat(half);
    }
  }
  return stored;
}

std::vector<std::string_view> ExampleInputs(const Mechanism& mechanism) {
  const Example* example = FindExample(mechanism.id);
  std::vector<std::string_view> names;
  for (std::string_view word : SplitWords(mechanism.inputs)) {
    const bool optional = word.ends_with('?');
    if (optional) word.remove_suffix(1);
    if (!optional || (example != nullptr && HasWord(example->inputs, word))) names.push_back(word);
  }
  return names;
}

std::vector<NamedParam> ExampleParams(const Mechanism& mechanism, const Extent& extents) {
  std::vector<NamedParam> params;
  for (const Parameter& parameter : Parameters()) {
    if (parameter.type != "choice" || !HasWord(mechanism.params, parameter.name)) continue;
    const std::string_view first = parameter.range.substr(0, parameter.range.find('|'));
    params.push_back({std::string(parameter.name), std::string(first)});
  }
  if (const Example* example = FindExample(mechanism.id)) {
    for (std::string_view word : SplitWords(example->params)) {
      const auto [name, value] = SplitPair(word);
      params.push_back({std::string(name), Value(value, extents)});
    }
  }
  return params;
}

}  // namespace heed::bench
