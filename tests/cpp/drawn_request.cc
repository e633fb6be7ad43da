// What a drawn request holds, and its way into memory.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "heed/dtype.h"
#include "random_request.h"

namespace heed::testing {
namespace {

// Between the rows of a padded tensor.
constexpr int64_t kGap = 3;

void Store(DType dtype, double value, std::byte* to) {
  const auto put = [&](auto x) { std::memcpy(to, &x, sizeof x); };
  switch (dtype) {
    case DType::kFloat32:
      return put(static_cast<float>(value));
    case DType::kFloat16:
      return put(ToFloat16(static_cast<float>(value)));
    case DType::kBFloat16:
      return put(ToBFloat16(static_cast<float>(value)));
    case DType::kInt32:
      return put(static_cast<int32_t>(value));
    default:
      return put(static_cast<uint8_t>(value));
  }
}

double Rounded(DType dtype, double value) {
  switch (dtype) {
    case DType::kFloat32:
      return static_cast<float>(value);
    case DType::kFloat16:
      return ToFloat(ToFloat16(static_cast<float>(value)));
    case DType::kBFloat16:
      return ToFloat(ToBFloat16(static_cast<float>(value)));
    default:
      return value;
  }
}

void Print(std::ostream& out, const ParamValue& value) {
  if (const auto* number = std::get_if<double>(&value)) out << *number;
  if (const auto* word = std::get_if<std::string>(&value)) out << '"' << *word << '"';
  if (const auto* flag = std::get_if<bool>(&value)) out << (*flag ? "true" : "false");
  if (const auto* list = std::get_if<std::vector<double>>(&value)) {
    out << '[';
    for (const double number : *list) out << number << ' ';
    out << ']';
  }
}

}  // namespace

int64_t DrawnTensor::size() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

void DrawnTensor::Pack() {
  const int64_t dim = shape.empty() ? 1 : shape.back();
  const int64_t row = dim + (padded ? kGap : 0);
  const int64_t rows = dim == 0 ? 0 : size() / dim;
  const size_t bytes = static_cast<size_t>(ElementSize(dtype));
  // Ends with the last element: a memory checker sees what reads behind it.
  const int64_t reach = std::max<int64_t>(1, rows * row - (row - dim));
  memory.assign(static_cast<size_t>(reach) * bytes, std::byte{0});
  std::byte* to = memory.data();
  const bool is_float = dtype != DType::kInt32 && dtype != DType::kUint8;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t d = 0; d < row; ++d, to += bytes) {
      if (d >= dim) {
        if (r + 1 == rows) break;
        Store(dtype, is_float ? std::numeric_limits<double>::quiet_NaN() : 77, to);
        continue;
      }
      double& value = values[static_cast<size_t>(r * dim + d)];
      value = Rounded(dtype, value);
      Store(dtype, value, to);
    }
  }
}

AnyTensor DrawnTensor::any() const {
  AnyTensor tensor;
  tensor.dtype = dtype;
  tensor.data = const_cast<std::byte*>(memory.data());
  tensor.rank = static_cast<int>(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    tensor.shape[axis] = shape[axis];
    tensor.strides[axis] = stride;
    const bool last = axis + 1 == shape.size();
    stride *= shape[axis] + (last && padded ? kGap : 0);
  }
  return tensor;
}

Request DrawnRequest::request() const {
  Request request;
  request.id = id;
  for (const auto& [name, tensor] : inputs) request.inputs.push_back({name, tensor.any()});
  for (const auto& [name, value] : params) request.params.push_back({name, value});
  return request;
}

std::string DrawnRequest::Describe() const {
  std::ostringstream out;
  out << id;
  for (const auto& [name, tensor] : inputs) {
    out << "\n  " << name << " " << DTypeName(tensor.dtype) << " [";
    for (const int64_t extent : tensor.shape) out << extent << ' ';
    out << ']' << (tensor.padded ? " padded" : "");
  }
  for (const auto& [name, value] : params) {
    out << "\n  " << name << " = ";
    Print(out, value);
  }
  return out.str();
}

const ParamValue* DrawnRequest::param(const std::string& name) const {
  const auto at = params.find(name);
  return at == params.end() ? nullptr : &at->second;
}

std::string DrawnRequest::Word(const std::string& name, const std::string& fallback) const {
  const ParamValue* value = param(name);
  const auto* word = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return word == nullptr ? fallback : *word;
}

double DrawnRequest::Number(const std::string& name, double fallback) const {
  const ParamValue* value = param(name);
  const auto* number = value == nullptr ? nullptr : std::get_if<double>(value);
  return number == nullptr ? fallback : *number;
}

std::vector<std::string> WordsOf(std::string_view list, char separator) {
  std::vector<std::string> words;
  std::istringstream stream{std::string(list)};
  for (std::string word; std::getline(stream, word, separator);) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

bool Lists(std::string_view list, std::string_view word) {
  const std::vector<std::string> words = WordsOf(list);
  return std::ranges::any_of(words, [&](std::string_view entry) {
    if (entry.ends_with('?')) entry.remove_suffix(1);
    return entry == word;
  });
}

const Parameter& ParameterRow(std::string_view name) {
  return *std::ranges::find(Parameters(), name, &Parameter::name);
}

const Input& InputRow(std::string_view name) {
  return *std::ranges::find(Inputs(), name, &Input::name);
}

}  // namespace heed::testing
