#include "heed/training/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>

#include "src/memory_errors.h"
#include "src/message.h"
#include "src/training/safetensors_header.h"

namespace heed::training {
namespace {

struct StoredType {
  std::string_view name;
  int64_t bytes;
};

constexpr StoredType kTypes[] = {{"F64", 8},  {"F32", 4},     {"F16", 2},    {"BF16", 2},
                                 {"I64", 8},  {"I32", 4},     {"I16", 2},    {"I8", 1},
                                 {"U64", 8},  {"U32", 4},     {"U16", 2},    {"U8", 1},
                                 {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

int64_t BytesOf(const HeaderEntry& entry) {
  const auto type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                 [&](const StoredType& t) { return t.name == entry.dtype; });
  if (type == std::end(kTypes)) {
    Fail(ErrorCode::kDType, "tensor \"{}\" has the unknown type \"{}\"", {entry.name, entry.dtype});
  }
  int64_t bytes = type->bytes;
  // Zeros first: an empty tensor has no size that could overflow.
  if (std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end()) return 0;
  for (const int64_t extent : entry.shape) {
    if (!__builtin_mul_overflow(bytes, extent, &bytes)) continue;
    Fail(ErrorCode::kShape, "tensor \"{}\" has a shape whose size cannot be addressed",
         {entry.name});
  }
  return bytes;
}

// The bytes of an entry, which end where the next one begins.
std::span<const uint8_t> Place(const HeaderEntry& entry, std::span<const uint8_t> data) {
  if (entry.offsets.size() != 2) {
    Fail(ErrorCode::kRange, "tensor \"{}\" has {} data_offsets; expected 2",
         {entry.name, entry.offsets.size()});
  }
  const int64_t begin = entry.offsets[0], end = entry.offsets[1];
  if (begin > end || end > static_cast<int64_t>(data.size())) {
    Fail(ErrorCode::kRange, "tensor \"{}\" lies at [{}, {}) of {} bytes of data",
         {entry.name, begin, end, data.size()});
  }
  const int64_t bytes = BytesOf(entry);
  if (end - begin != bytes) {
    Fail(ErrorCode::kShape, "tensor \"{}\" has {} bytes; its type and shape take {}",
         {entry.name, end - begin, bytes});
  }
  return data.subspan(static_cast<size_t>(begin), static_cast<size_t>(bytes));
}

// Tensors fill the data one after the other.
void CheckCover(std::vector<HeaderEntry>& entries, size_t data_bytes) {
  std::sort(entries.begin(), entries.end(),
            [](const HeaderEntry& a, const HeaderEntry& b) { return a.offsets < b.offsets; });
  int64_t end = 0;
  for (const HeaderEntry& entry : entries) {
    if (entry.offsets[0] != end) {
      Fail(ErrorCode::kRange, "tensor \"{}\" begins at byte {}; the one before it ends at {}",
           {entry.name, entry.offsets[0], end});
    }
    end = entry.offsets[1];
  }
  if (end != static_cast<int64_t>(data_bytes)) {
    Fail(ErrorCode::kRange, "the tensors end at byte {} of {} bytes of data", {end, data_bytes});
  }
}

std::string_view HeaderText(std::span<const uint8_t> bytes) {
  if (bytes.size() < 10) {
    Fail(ErrorCode::kOption, "not a safetensors file: {} bytes are too few", {bytes.size()});
  }
  uint64_t length = 0;
  for (size_t n = 8; n-- > 0;) length = length << 8 | bytes[n];
  if (length > kMaxSafetensorsHeader || length > bytes.size() - 8 || bytes[8] != '{') {
    Fail(ErrorCode::kOption, "not a safetensors file: no header where one should be");
  }
  return {reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<size_t>(length)};
}

template <class T>
T Element(const uint8_t* bytes, size_t n) {
  T element;
  std::memcpy(&element, bytes + n * sizeof(T), sizeof(T));
  return element;
}

template <class T>
void Append(const T& element, std::vector<uint8_t>& to) {
  const auto bytes = std::bit_cast<std::array<uint8_t, sizeof(T)>>(element);
  to.insert(to.end(), bytes.begin(), bytes.end());
}

float Rounded(float x, DType dtype) {
  if (dtype == DType::kFloat32) return x;
  return dtype == DType::kFloat16 ? ToFloat(ToFloat16(x)) : ToFloat(ToBFloat16(x));
}

// Numbers that would become infinite are refused: what reads the file could do nothing with them.
void CheckHolds(const ParameterSet& parameters, DType dtype) {
  const auto holds = [](DType type, float x) {
    return !std::isfinite(x) || std::isfinite(Rounded(x, type));
  };
  for (const Parameter& parameter : parameters) {
    for (const float x : parameter.value) {
      if (holds(dtype, x)) continue;
      const bool two_bytes = holds(DType::kBFloat16, x);
      Fail(ErrorCode::kRange, "dtype {} cannot hold the {} in tensor \"{}\"; float32 {}can",
           {DTypeName(dtype), static_cast<double>(x), parameter.name,
            (two_bytes ? "and bfloat16 " : "")});
    }
  }
}

void AppendFloat(float x, DType dtype, std::vector<uint8_t>& to) {
  if (dtype == DType::kFloat32) return Append(x, to);
  Append(dtype == DType::kFloat16 ? ToFloat16(x).bits : ToBFloat16(x).bits, to);
}

std::string_view TypeName(DType dtype) {
  if (dtype == DType::kFloat32) return "F32";
  if (dtype == DType::kFloat16) return "F16";
  if (dtype == DType::kBFloat16) return "BF16";
  Fail(ErrorCode::kDType, "dtype is {}; expected float32, float16 or bfloat16", {DTypeName(dtype)});
}

std::string HeaderOf(const ParameterSet& parameters,
                     const std::map<std::string, std::string>& metadata, DType dtype) {
  std::string text = "{\"__metadata__\":{";
  for (const auto& [key, value] : metadata) {
    if (text.back() != '{') text += ",";
    text += Quoted(key) + ":" + Quoted(value);
  }
  text += "}";
  int64_t end = 0;
  for (const Parameter& parameter : parameters) {
    text.append(",").append(Quoted(parameter.name));
    text.append(":{\"dtype\":").append(Quoted(TypeName(dtype))).append(",\"shape\":[");
    for (const int64_t extent : parameter.shape) {
      if (text.back() != '[') text += ",";
      text += std::to_string(extent);
    }
    const int64_t begin = end;
    end += static_cast<int64_t>(parameter.value.size()) * ElementSize(dtype);
    text += "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

// Names and metadata that no reader takes back are refused while there is something to lose.
void CheckIsReadable(const std::string& header) {
  if (header.size() > kMaxSafetensorsHeader) {
    Fail(ErrorCode::kRange, "names, shapes and metadata take {} bytes; a file holds up to {}",
         {header.size(), kMaxSafetensorsHeader});
  }
  try {
    ParseHeader(header);
  } catch (const Error& error) {
    Fail(error.code(), "a name, a shape or metadata cannot be stored, as nothing could read it: {}",
         {error.what()});
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::span<const uint8_t> bytes) {
  try {
    const std::string_view text = HeaderText(bytes);
    Header header = ParseHeader(text);
    const std::span<const uint8_t> data = bytes.subspan(8 + text.size());
    for (const HeaderEntry& entry : header.entries) {
      entries_.push_back({entry.name, entry.dtype, entry.shape, Place(entry, data)});
    }
    CheckCover(header.entries, data.size());
    metadata_ = std::move(header.metadata);
  } catch (const std::bad_alloc&) {
    Fail(ErrorCode::kMemory, "could not allocate the header of a safetensors file");
  }
}

const SafetensorsEntry* SafetensorsFile::Find(std::string_view name) const {
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const SafetensorsEntry& e) { return e.name == name; });
  return entry == entries_.end() ? nullptr : &*entry;
}

void ReadFloats(const SafetensorsEntry& entry, std::span<float> to) {
  WithMemoryErrors("what a file holds", [&] {
    const uint8_t* bytes = entry.bytes.data();
    const bool f64 = entry.dtype == "F64", f32 = entry.dtype == "F32";
    const bool f16 = entry.dtype == "F16", bf16 = entry.dtype == "BF16";
    if (!f64 && !f32 && !f16 && !bf16) {
      Fail(ErrorCode::kDType, "tensor \"{}\" has type {}; expected F64, F32, F16 or BF16",
           {entry.name, entry.dtype});
    }
    const size_t count = entry.bytes.size() / (f64 ? 8 : f32 ? 4 : 2);
    if (to.size() != count) {
      Fail(ErrorCode::kShape, "tensor \"{}\" has {} elements; expected {}",
           {entry.name, count, to.size()});
    }
    for (size_t n = 0; n < count; ++n) {
      if (f64) to[n] = static_cast<float>(Element<double>(bytes, n));
      if (f32) to[n] = Element<float>(bytes, n);
      if (f16) to[n] = ToFloat(Float16{Element<uint16_t>(bytes, n)});
      if (bf16) to[n] = ToFloat(BFloat16{Element<uint16_t>(bytes, n)});
    }
  });
}

std::vector<uint8_t> SaveSafetensors(const ParameterSet& parameters,
                                     const std::map<std::string, std::string>& metadata,
                                     DType dtype) {
  try {
    const std::string text = HeaderOf(parameters, metadata, dtype);
    CheckIsReadable(text);
    CheckHolds(parameters, dtype);
    std::vector<uint8_t> bytes;
    bytes.reserve(8 + text.size() +
                  static_cast<size_t>(parameters.NumElements() * ElementSize(dtype)));
    for (size_t n = 0; n < 8; ++n) {
      bytes.push_back(static_cast<uint8_t>(static_cast<uint64_t>(text.size()) >> (8 * n)));
    }
    bytes.insert(bytes.end(), text.begin(), text.end());
    for (const Parameter& parameter : parameters) {
      for (const float x : parameter.value) AppendFloat(x, dtype, bytes);
    }
    return bytes;
  } catch (const std::bad_alloc&) {
    Fail(ErrorCode::kMemory, "could not allocate a file of {} elements",
         {parameters.NumElements()});
  }
}

void LoadParameters(const SafetensorsFile& file, ParameterSet& parameters) {
  WithMemoryErrors("what a file holds", [&] {
    for (const SafetensorsEntry& entry : file.entries()) {
      const Parameter* parameter = parameters.Find(entry.name);
      if (parameter == nullptr) {
        Fail(ErrorCode::kOption, "tensor \"{}\" is no parameter of this model", {entry.name});
      }
      if (entry.shape != parameter->shape) {
        Fail(ErrorCode::kShape, "tensor \"{}\" has another shape than the model's", {entry.name});
      }
    }
    std::vector<std::vector<float>> values;
    for (const Parameter& parameter : parameters) {
      const SafetensorsEntry* entry = file.Find(parameter.name);
      if (entry == nullptr) {
        Fail(ErrorCode::kOption, "tensor \"{}\" is missing", {parameter.name});
      }
      ReadFloats(*entry, values.emplace_back(parameter.value.size()));
    }
    size_t n = 0;
    for (Parameter& parameter : parameters) {
      std::copy(values[n].begin(), values[n].end(), parameter.value.begin());
      ++n;
    }
  });
}

}  // namespace heed::training
