#include "inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <sstream>

namespace heed::reference {
namespace {

constexpr double kMaxPosition = 9007199254740992.0;  // 2^53: beyond, doubles skip integers

bool IsFloat(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

void ExpectDType(std::string_view name, const AnyTensor& tensor, bool accepted,
                 const char* expectation) {
  if (accepted) return;
  throw Error(ErrorCode::kDType,
              std::string(name) + " is " + DTypeName(tensor.dtype) + ": expected " + expectation);
}

double Load(const AnyTensor& tensor, int64_t offset) {
  switch (tensor.dtype) {
    case DType::kFloat32:
      return static_cast<const float*>(tensor.data)[offset];
    case DType::kFloat64:
      return static_cast<const double*>(tensor.data)[offset];
    case DType::kInt32:
      return static_cast<const int32_t*>(tensor.data)[offset];
    case DType::kUint8:
      return static_cast<const uint8_t*>(tensor.data)[offset];
    case DType::kFloat16:
      return ToFloat(static_cast<const Float16*>(tensor.data)[offset]);
    case DType::kBFloat16:
      return ToFloat(static_cast<const BFloat16*>(tensor.data)[offset]);
    case DType::kInt8:
    case DType::kFloat8E4M3:
      break;  // only inside caches
  }
  return 0.0;
}

// Copies a tensor of rank 0 to 4; its extents become the last ones of the array.
Array Copy(std::string_view name, const AnyTensor& tensor) {
  Array array;
  Extents strides{};
  int64_t count = 1;
  for (int axis = 0; axis < tensor.rank; ++axis) {
    const int64_t extent = tensor.shape[axis];
    if (extent < 0 || (extent > 0 && count > std::numeric_limits<int64_t>::max() / 8 / extent)) {
      throw Error(ErrorCode::kShape, Describe(name, tensor) +
                                         ": extents must be >= 0 and their "
                                         "product must fit into memory");
    }
    count *= extent;
    array.shape[4 - tensor.rank + axis] = extent;
    strides[4 - tensor.rank + axis] = tensor.strides[axis];
  }
  if (count > 0 && tensor.data == nullptr) {
    throw Error(ErrorCode::kOption, Describe(name, tensor) + " has no data");
  }
  array.values.reserve(count);
  for (int64_t b = 0; b < array.shape[0] && count > 0; ++b) {
    for (int64_t h = 0; h < array.shape[1]; ++h) {
      for (int64_t i = 0; i < array.shape[2]; ++i) {
        for (int64_t d = 0; d < array.shape[3]; ++d) {
          array.values.push_back(
              Load(tensor, b * strides[0] + h * strides[1] + i * strides[2] + d * strides[3]));
        }
      }
    }
  }
  return array;
}

Array ReadRank4(const Request& request, std::string_view name) {
  const AnyTensor& tensor = *FindInput(request, name);
  ExpectDType(name, tensor, IsFloat(tensor.dtype), "a float type");
  if (tensor.rank != 4) {
    throw Error(ErrorCode::kShape,
                Describe(name, tensor) + ": expected [batch, heads, len, dim], rank 4");
  }
  return Copy(name, tensor);
}

bool HasWord(std::string_view words, std::string_view word) {
  std::istringstream stream{std::string(words)};
  for (std::string next; stream >> next;) {
    if (next.ends_with('?')) next.pop_back();
    if (next == word) return true;
  }
  return false;
}

template <typename Named>
void CheckList(const std::vector<Named>& list, std::string_view allowed, const char* kind) {
  for (size_t n = 0; n < list.size(); ++n) {
    // captured.slope is listed as captured.
    if (!HasWord(allowed, list[n].name.substr(0, list[n].name.find('.')))) {
      throw Error(ErrorCode::kOption, list[n].name + " is not " + kind +
                                          " of this mechanism: expected " + std::string(allowed));
    }
    for (size_t other = 0; other < n; ++other) {
      if (list[other].name == list[n].name) {
        throw Error(ErrorCode::kOption, list[n].name + " is given twice");
      }
    }
  }
}

Error WrongType(std::string_view name, const char* expectation) {
  return Error(ErrorCode::kOption, std::string(name) + " must be " + expectation);
}

struct InputRow {
  std::string_view name, kind, shape;
};
constexpr InputRow kInputs[] = {
#define HEED_INPUT(name, kind, shape, draw, summary) {#name, kind, shape},
#include "heed/inputs.inc"
#undef HEED_INPUT
};

// The rank is that of one of the shapes of the row.
void CheckRank(const NamedTensor& input) {
  const int rank = input.tensor.rank;
  bool fits = rank >= 0 && rank <= 4;
  for (const InputRow& row : kInputs) {
    if (row.name != input.name || !fits) continue;
    fits = false;
    std::istringstream shapes{std::string(row.shape)};
    for (std::string shape; std::getline(shapes, shape, '|');) {
      std::istringstream symbols(shape);
      int count = 0;
      for (std::string symbol; symbols >> symbol;) ++count;
      fits = fits || count == rank;
    }
  }
  if (fits) return;
  throw Error(ErrorCode::kShape, input.name + " has rank " + std::to_string(rank));
}

// The symbols of the first shape of this rank.
std::vector<std::string> SymbolsOf(const NamedTensor& input) {
  for (const InputRow& row : kInputs) {
    if (row.name != input.name) continue;
    std::istringstream shapes{std::string(row.shape)};
    for (std::string shape; std::getline(shapes, shape, '|');) {
      std::istringstream stream(shape);
      std::vector<std::string> symbols;
      for (std::string symbol; stream >> symbol;) symbols.push_back(symbol);
      if (static_cast<int>(symbols.size()) == input.tensor.rank) return symbols;
    }
  }
  return {};
}

// An extent of 0 is 0 in all inputs: the rule of inputs.inc, where breaking it would hide an input.
void CheckZeros(const Request& request) {
  std::map<std::string, std::set<bool>> zero;
  for (const NamedTensor& input : request.inputs) {
    const std::vector<std::string> symbols = SymbolsOf(input);
    for (size_t axis = 0; axis < symbols.size(); ++axis) {
      std::string symbol = symbols[axis];
      const int64_t extent = input.tensor.shape[axis];
      if (input.name == "k" && axis == 3) continue;  // as wide as its score says
      if (symbol.ends_with('?')) {
        if (extent == 1) continue;
        symbol.pop_back();
      }
      zero[symbol].insert(extent == 0);
      if (zero[symbol].size() == 1) continue;
      throw Error(ErrorCode::kShape, symbol + " is 0 in one input and not in another");
    }
  }
}

struct ParameterRow {
  std::string_view name, type, range;
};
constexpr ParameterRow kParameters[] = {
#define HEED_PARAMETER(name, type, default_value, range, symbol, summary) {#name, type, range},
#include "heed/params.inc"
#undef HEED_PARAMETER
};

// What is given is of the type and the words of its row, whether anything reads it or not.
void CheckParam(const ParameterRow& row, const NamedParam& param) {
  const auto is = [&](std::string_view types) { return HasWord(types, row.type); };
  const auto* word = std::get_if<std::string>(&param.value);
  std::vector<double> numbers;
  if (const auto* one = std::get_if<double>(&param.value)) numbers = {*one};
  if (const auto* list = std::get_if<std::vector<double>>(&param.value)) {
    if (!is("numbers integers offset")) throw WrongType(row.name, "no list");
    numbers = *list;
  }
  if (std::holds_alternative<bool>(param.value) != is("bool")) {
    throw WrongType(row.name, std::string(row.type).c_str());
  }
  if (word != nullptr && !is("word choice expression offset seed")) {
    throw WrongType(row.name, "a number");
  }
  if (word == nullptr && is("word choice expression")) throw WrongType(row.name, "a word");
  if (is("word choice")) {
    std::string words(row.range);
    std::ranges::replace(words, '|', ' ');
    if (!HasWord(words, *word)) {
      throw Error(ErrorCode::kOption,
                  param.name + " is \"" + *word + "\": expected one of " + words);
    }
  }
  const bool whole = is("count integers offset seed");
  for (const double x : numbers) {
    const bool fits = std::isfinite(x) && (!whole || x == std::floor(x)) &&
                      (!whole || is("count") || std::abs(x) <= kMaxPosition) &&
                      (x >= 0 || !is("count seed"));
    if (!fits) throw Error(ErrorCode::kRange, param.name + " is out of range");
  }
}

// What nothing in the call would read (read_by.inc). `params` are those of the mechanism.
void CheckRead(const Request& request, std::string_view params) {
  const std::map<std::string, std::string> readers = {
#define HEED_READ_BY(name, readers) {#name, readers},
#include "heed/read_by.inc"
#undef HEED_READ_BY
  };
  const auto is_given = [&](const std::string& reader) {
    const size_t at = std::min(reader.find('='), reader.size());
    const std::string name = reader.substr(0, at);
    if (at == reader.size()) {
      return FindInput(request, name) != nullptr || FindParam(request, name) != nullptr;
    }
    if (!HasWord(params, name)) return true;  // the mechanism has settled it
    const ParamValue* param = FindParam(request, name);
    std::string words = reader.substr(at + 1);
    std::ranges::replace(words, '|', ' ');
    return param != nullptr && HasWord(words, std::get<std::string>(*param));
  };
  const auto check = [&](const std::string& name) {
    const auto row = readers.find(name.substr(0, name.find('.')));
    if (row == readers.end()) return;
    std::istringstream stream(row->second);
    for (std::string reader; stream >> reader;) {
      if (is_given(reader)) return;
    }
    throw Error(ErrorCode::kOption, name + " is read only by one of: " + row->second);
  };
  for (const NamedParam& param : request.params) check(param.name);
  for (const NamedTensor& input : request.inputs) check(input.name);
}

}  // namespace

void CheckNames(const Request& request, std::string_view inputs, std::string_view params) {
  CheckList(request.inputs, inputs, "an input");
  CheckList(request.params, params, "a parameter");
  for (const NamedTensor& input : request.inputs) CheckRank(input);
  std::istringstream stream{std::string(inputs)};
  for (std::string name; stream >> name;) {
    if (!name.ends_with('?') && FindInput(request, name) == nullptr) {
      throw Error(ErrorCode::kOption, "input " + name + " is missing");
    }
  }
  for (const NamedParam& param : request.params) {
    for (const ParameterRow& row : kParameters) {
      if (row.name == param.name) CheckParam(row, param);
    }
  }
  CheckZeros(request);
  CheckRead(request, params);
}

const AnyTensor* FindInput(const Request& request, std::string_view name) {
  for (const NamedTensor& input : request.inputs) {
    if (input.name == name) return &input.tensor;
  }
  return nullptr;
}

const ParamValue* FindParam(const Request& request, std::string_view name) {
  for (const NamedParam& param : request.params) {
    if (param.name == name) return &param.value;
  }
  return nullptr;
}

Array ReadArray(const Request& request, std::string_view name) {
  const AnyTensor& tensor = *FindInput(request, name);
  ExpectDType(name, tensor, IsFloat(tensor.dtype), "float32 or float64");
  return Copy(name, tensor);
}

KeyWidth WidthOfScore(const Request& request) {
  const ParamValue* score = FindParam(request, "score");
  const auto* word = score == nullptr ? nullptr : std::get_if<std::string>(score);
  const bool joins = word != nullptr && (*word == "bilinear" || *word == "additive");
  return joins ? KeyWidth::kFree : KeyWidth::kAsQueries;
}

Qkv ReadQkv(const Request& request, KeyWidth key_width, std::string_view keys) {
  Qkv qkv;
  qkv.q = ReadRank4(request, "q");
  qkv.k = ReadRank4(request, keys);
  qkv.v = ReadRank4(request, "v");
  const Extents q = qkv.q.shape, k = qkv.k.shape, v = qkv.v.shape;
  const std::string shapes = Describe("q", *FindInput(request, "q")) + ", " +
                             Describe(keys, *FindInput(request, keys)) + ", " +
                             Describe("v", *FindInput(request, "v"));
  if (q[0] != k[0] || q[0] != v[0]) {
    throw Error(ErrorCode::kShape, shapes + ": batch must be the same");
  }
  if (k[1] != v[1] || k[2] != v[2]) {
    throw Error(ErrorCode::kShape, shapes + ": k and v must have the same heads and length");
  }
  if (q[3] != k[3] && key_width == KeyWidth::kAsQueries)
    throw Error(ErrorCode::kShape, shapes + ": q and k must have the same head_dim");
  if (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0) {
    throw Error(ErrorCode::kShape, shapes + ": the heads of q must be a multiple of those of k");
  }
  qkv.batch = q[0], qkv.num_heads = q[1], qkv.q_len = q[2], qkv.head_dim = q[3];
  qkv.num_kv_heads = k[1], qkv.kv_len = k[2], qkv.head_dim_v = v[3];
  return qkv;
}

std::optional<Array> ReadPairs(const Request& request, std::string_view name, const Qkv& qkv,
                               DType dtype) {
  const AnyTensor* tensor = FindInput(request, name);
  if (tensor == nullptr) return std::nullopt;
  if (dtype == DType::kUint8) {
    ExpectDType(name, *tensor, tensor->dtype == DType::kUint8, "uint8, nonzero = may attend");
  } else {
    ExpectDType(name, *tensor, IsFloat(tensor->dtype), "a float type");
  }
  if (tensor->rank != 4 && tensor->rank != 2) {
    throw Error(ErrorCode::kShape, Describe(name, *tensor) + ": expected rank 4 or 2");
  }
  Array array = Copy(name, *tensor);
  const Extents full{qkv.batch, qkv.num_heads, qkv.q_len, qkv.kv_len};
  for (int axis = 0; axis < 4; ++axis) {
    if (array.shape[axis] == 1 || array.shape[axis] == full[axis]) continue;
    throw Error(ErrorCode::kShape, Describe(name, *tensor) +
                                       ": does not broadcast to [batch, num_heads, q_len, kv_len]");
  }
  return array;
}

std::optional<Array> ReadFloats(const Request& request, std::string_view name, int rank) {
  const AnyTensor* tensor = FindInput(request, name);
  if (tensor == nullptr) return std::nullopt;
  ExpectDType(name, *tensor, IsFloat(tensor->dtype), "float32 or float64");
  if (tensor->rank != rank) {
    throw Error(ErrorCode::kShape,
                Describe(name, *tensor) + ": expected rank " + std::to_string(rank));
  }
  return Copy(name, *tensor);
}

Array ReadFloats(const Request& request, std::string_view name) {
  const AnyTensor& tensor = *FindInput(request, name);
  ExpectDType(name, tensor, IsFloat(tensor.dtype), "float32 or float64");
  return Copy(name, tensor);
}

std::optional<Array> ReadBytes(const Request& request, std::string_view name) {
  const AnyTensor* tensor = FindInput(request, name);
  if (tensor == nullptr) return std::nullopt;
  ExpectDType(name, *tensor, tensor->dtype == DType::kUint8, "uint8, nonzero = may attend");
  return Copy(name, *tensor);
}

std::vector<double> ReadList(const Request& request, std::string_view name) {
  const AnyTensor* tensor = FindInput(request, name);
  if (tensor == nullptr) return {};
  ExpectDType(name, *tensor, IsFloat(tensor->dtype), "a float type");
  if (tensor->rank > 1) {
    throw Error(ErrorCode::kShape, Describe(name, *tensor) + ": expected rank 1");
  }
  return Copy(name, *tensor).values;
}

std::optional<Array> ReadIntegers(const Request& request, std::string_view name) {
  const AnyTensor* tensor = FindInput(request, name);
  if (tensor == nullptr) return std::nullopt;
  ExpectDType(name, *tensor, tensor->dtype == DType::kInt32, "int32");
  if (tensor->rank != 1 && tensor->rank != 2) {
    throw Error(ErrorCode::kShape, Describe(name, *tensor) + ": expected rank 1 or 2");
  }
  return Copy(name, *tensor);
}

bool ReadFlag(const Request& request, std::string_view name) {
  const ParamValue* value = FindParam(request, name);
  if (value == nullptr) return false;
  if (const bool* flag = std::get_if<bool>(value)) return *flag;
  throw WrongType(name, "true or false");
}

std::optional<double> ReadNumber(const Request& request, std::string_view name) {
  const ParamValue* value = FindParam(request, name);
  if (value == nullptr) return std::nullopt;
  const double* number = std::get_if<double>(value);
  if (number == nullptr) throw WrongType(name, "a number");
  if (!std::isfinite(*number)) {
    throw Error(ErrorCode::kRange,
                std::string(name) + " is " + std::to_string(*number) + ": it must be finite");
  }
  return *number;
}

int64_t WholeNumber(double number, std::string_view name) {
  if (number == std::floor(number) && std::abs(number) <= kMaxPosition) {
    return static_cast<int64_t>(number);
  }
  throw Error(ErrorCode::kRange, std::string(name) + " is " + std::to_string(number) +
                                     ": expected an integer within +-2^53");
}

std::optional<int64_t> ReadCount(const Request& request, std::string_view name) {
  const std::optional<double> number = ReadNumber(request, name);
  if (!number) return std::nullopt;
  if (*number < 0.0) {
    throw Error(ErrorCode::kRange, std::string(name) + " is " + std::to_string(*number) +
                                       ": expected an integer >= 0");
  }
  return WholeNumber(std::min(*number, kMaxPosition), name);  // farther away than any key
}

std::optional<std::string> ReadWord(const Request& request, std::string_view name,
                                    const std::vector<std::string>& allowed) {
  const ParamValue* value = FindParam(request, name);
  if (value == nullptr) return std::nullopt;
  std::string words;
  for (const std::string& word : allowed) words += (words.empty() ? "\"" : ", \"") + word + "\"";
  const std::string* given = std::get_if<std::string>(value);
  if (given == nullptr) throw WrongType(name, ("one of " + words).c_str());
  for (const std::string& word : allowed) {
    if (word == *given) return word;
  }
  throw Error(ErrorCode::kOption, std::string(name) + " is \"" + *given + "\": expected " + words);
}

std::string Describe(std::string_view name, const AnyTensor& tensor) {
  std::string text = std::string(name) + " [";
  for (int axis = 0; axis < tensor.rank; ++axis) {
    text += (axis == 0 ? "" : ", ") + std::to_string(tensor.shape[axis]);
  }
  return text + "]";
}

}  // namespace heed::reference
