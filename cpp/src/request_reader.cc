#include "src/request_reader.h"

#include <cmath>

#include "src/from_javascript.h"
#include "src/message.h"
#include "src/param_checks.h"
#include "src/word_lists.h"

namespace heed {
namespace {

std::string Text(std::string_view view) { return std::string(view); }

// Tensors of a named kind are listed by what stands before their dot.
std::string_view ListedName(std::string_view name) { return name.substr(0, name.find('.')); }

// A view of a rank-4 or rank-2 tensor with leading extents of 1.
template <typename T>
TensorView<T> RankFour(std::string_view name, const AnyTensor& tensor) {
  TensorView<T> view = {static_cast<T*>(tensor.data), tensor.shape, tensor.strides};
  if (tensor.rank == 4) return view;
  if (tensor.rank == 2) {
    view.shape = {1, 1, tensor.shape[0], tensor.shape[1]};
    view.strides = {0, 0, tensor.strides[0], tensor.strides[1]};
    return view;
  }
  Fail(ErrorCode::kShape,
       "{} has rank {}; expected 4 ([batch, num_heads, q_len, kv_len]) or 2 ([q_len, kv_len]); "
       "rank 3 is ambiguous",
       {name, tensor.rank});
}

template <typename T>
TensorView<const T> Padded(const AnyTensor* tensor) {
  if (tensor == nullptr) return {};
  TensorView<const T> view = {static_cast<const T*>(tensor->data), {1, 1, 1, 1}, {0, 0, 0, 1}};
  const size_t rank = static_cast<size_t>(tensor->rank);
  for (size_t axis = 0; axis < rank; ++axis) {
    view.shape[4 - rank + axis] = tensor->shape[axis];
    view.strides[4 - rank + axis] = tensor->strides[axis];
  }
  return view;
}

template <typename T>
std::span<const T> Vector(std::string_view name, const AnyTensor& tensor) {
  int64_t count = 1;
  for (int i = tensor.rank - 1; i >= 0; --i) {
    const size_t at = static_cast<size_t>(i);
    if (tensor.shape[at] < 0) {
      Fail(ErrorCode::kShape, "{} has a negative extent", {name});
    }
    if (tensor.shape[at] > 1 && tensor.strides[at] != count) {
      Fail(ErrorCode::kShape, "{} must be contiguous", {name});
    }
    if (__builtin_mul_overflow(count, tensor.shape[at], &count)) {
      Fail(ErrorCode::kShape, "{} has more elements than can be addressed", {name});
    }
  }
  return {static_cast<const T*>(tensor.data), static_cast<size_t>(count)};
}

}  // namespace

RequestReader::RequestReader(const Mechanism& mechanism, const Request& request)
    : mechanism_(mechanism), request_(request) {
  // Operations have rows of their own, which use words of the list in their own way.
  const bool listed = FindMechanism(mechanism.id) == &mechanism;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const NamedTensor& input = request.inputs[i];
    if (!HasWord(mechanism.inputs, ListedName(input.name))) {
      Fail(ErrorCode::kOption, "input {} is unknown to {}; its inputs are: {}",
           {input.name, Text(mechanism.id), Text(mechanism.inputs)});
    }
    CheckTensor(input);
    if (listed) CheckRank(input);
    for (size_t j = 0; j < i; ++j) {
      if (request.inputs[j].name == input.name) {
        Fail(ErrorCode::kOption, "input {} is given twice", {input.name});
      }
    }
  }
  for (size_t i = 0; i < request.params.size(); ++i) {
    const NamedParam& param = request.params[i];
    if (!HasWord(mechanism.params, param.name)) {
      Fail(ErrorCode::kOption, "parameter {} is unknown to {}; its parameters are: {}",
           {param.name, Text(mechanism.id), Text(mechanism.params)});
    }
    for (size_t j = 0; j < i; ++j) {
      if (request.params[j].name == param.name) {
        Fail(ErrorCode::kOption, "parameter {} is given twice", {param.name});
      }
    }
    if (listed) CheckParam(param);
  }
  for (std::string_view words = mechanism.inputs; !words.empty();) {
    const std::string_view word = NextWord(words);
    if (word.ends_with('?') || Input(word) != nullptr) continue;
    Fail(ErrorCode::kOption, "input {} is missing; {} needs it", {Text(word), Text(mechanism.id)});
  }
  if (!listed) return;
  CheckZeros(request.inputs);
  if (!kFromJavaScript) CheckRead(mechanism, request);  // it has looked
}

bool RequestReader::Takes(std::string_view name) const { return HasWord(mechanism_.inputs, name); }

const AnyTensor* RequestReader::Input(std::string_view name) const {
  for (const NamedTensor& input : request_.inputs) {
    if (input.name == name) return &input.tensor;
  }
  return nullptr;
}

const AnyTensor* RequestReader::Find(std::string_view name, DType dtype) const {
  const AnyTensor* tensor = Input(name);
  if (tensor != nullptr && tensor->dtype != dtype) {
    Fail(ErrorCode::kDType, "{} has element type {}; expected {}",
         {Text(name), DTypeName(tensor->dtype), DTypeName(dtype)});
  }
  return tensor;
}

TensorView<const float> RequestReader::RequiredTensor(std::string_view name) const {
  const AnyTensor* tensor = Find(name, DType::kFloat32);
  if (tensor == nullptr) Fail(ErrorCode::kOption, "input {} is missing", {Text(name)});
  if (tensor->rank != 4) {
    Fail(ErrorCode::kShape, "{} has rank {}; expected 4 ([batch, heads, len, dim])",
         {Text(name), tensor->rank});
  }
  return {static_cast<const float*>(tensor->data), tensor->shape, tensor->strides};
}

StoredTensor RequestReader::RequiredStored(std::string_view name) const {
  const AnyTensor* tensor = Input(name);
  if (tensor == nullptr) Fail(ErrorCode::kOption, "input {} is missing", {Text(name)});
  if (tensor->dtype != DType::kFloat32 && tensor->dtype != DType::kFloat16 &&
      tensor->dtype != DType::kBFloat16) {
    Fail(ErrorCode::kDType, "{} has element type {}; expected float32, float16 or bfloat16",
         {Text(name), DTypeName(tensor->dtype)});
  }
  if (tensor->rank != 4) {
    Fail(ErrorCode::kShape, "{} has rank {}; expected 4 ([batch, heads, len, dim])",
         {Text(name), tensor->rank});
  }
  return {tensor->data, tensor->dtype, tensor->shape, tensor->strides};
}

TensorView<const float> RequestReader::PairTensor(std::string_view name) const {
  const AnyTensor* tensor = Find(name, DType::kFloat32);
  if (tensor == nullptr) return {};
  return RankFour<const float>(Text(name), *tensor);
}

TensorView<const uint8_t> RequestReader::PairMask(std::string_view name) const {
  const AnyTensor* tensor = Find(name, DType::kUint8);
  if (tensor == nullptr) return {};
  return RankFour<const uint8_t>(Text(name), *tensor);
}

TensorView<const float> RequestReader::FloatTensor(std::string_view name) const {
  return Padded<float>(Find(name, DType::kFloat32));
}

TensorView<const int32_t> RequestReader::IntTensor(std::string_view name) const {
  return Padded<int32_t>(Find(name, DType::kInt32));
}

std::vector<CapturedTensor> RequestReader::Named(std::string_view prefix) const {
  std::vector<CapturedTensor> tensors;
  for (const NamedTensor& input : request_.inputs) {
    const size_t dot = input.name.find('.');
    if (dot == std::string::npos || std::string_view(input.name).substr(0, dot) != prefix) continue;
    const AnyTensor& tensor = *Find(input.name, DType::kFloat32);
    tensors.push_back({input.name.substr(dot + 1), tensor.rank, tensor.shape, tensor.strides,
                       static_cast<const float*>(tensor.data)});
  }
  return tensors;
}

TensorView<const uint8_t> RequestReader::ByteTensor(std::string_view name) const {
  return Padded<uint8_t>(Find(name, DType::kUint8));
}

std::span<const float> RequestReader::Floats(std::string_view name) const {
  const AnyTensor* tensor = Find(name, DType::kFloat32);
  if (tensor == nullptr) return {};
  return Vector<float>(Text(name), *tensor);
}

std::span<const int32_t> RequestReader::Ints(std::string_view name) const {
  const AnyTensor* tensor = Find(name, DType::kInt32);
  if (tensor == nullptr) return {};
  return Vector<int32_t>(Text(name), *tensor);
}

const ParamValue* RequestReader::Param(std::string_view name) const {
  for (const NamedParam& param : request_.params) {
    if (param.name == name) return &param.value;
  }
  return nullptr;
}

bool RequestReader::Flag(std::string_view name) const {
  const ParamValue* value = Param(name);
  if (value == nullptr) return false;
  if (const bool* flag = std::get_if<bool>(value)) return *flag;
  Fail(ErrorCode::kOption, "{} must be true or false", {Text(name)});
}

std::optional<double> RequestReader::Number(std::string_view name) const {
  const ParamValue* value = Param(name);
  if (value == nullptr) return std::nullopt;
  if (const double* number = std::get_if<double>(value)) return *number;
  Fail(ErrorCode::kOption, "{} must be a number", {Text(name)});
}

int64_t WholeNumber(std::string_view name, double value) {
  if (!(std::abs(value) <= 9007199254740992.0) || value != std::floor(value)) {
    Fail(ErrorCode::kRange, "{} = {}; expected a whole number within +-2^53", {Text(name), value});
  }
  return static_cast<int64_t>(value);
}

std::optional<int64_t> RequestReader::Count(std::string_view name) const {
  const std::optional<double> number = Number(name);
  if (!number) return std::nullopt;
  return WholeNumber(name, *number);
}

std::optional<uint64_t> RequestReader::Seed(std::string_view name) const {
  const ParamValue* value = Param(name);
  if (value == nullptr) return std::nullopt;
  return SeedOf(name, *value);
}

std::optional<std::string> RequestReader::Word(std::string_view name) const {
  const ParamValue* value = Param(name);
  if (value == nullptr) return std::nullopt;
  if (const std::string* word = std::get_if<std::string>(value)) return *word;
  Fail(ErrorCode::kOption, "{} must be a word", {Text(name)});
}

std::vector<double> RequestReader::Numbers(std::string_view name) const {
  const ParamValue* value = Param(name);
  if (value == nullptr) return {};
  if (const double* number = std::get_if<double>(value)) return {*number};
  if (const auto* numbers = std::get_if<std::vector<double>>(value)) return *numbers;
  Fail(ErrorCode::kOption, "{} must be a number or a list of numbers", {Text(name)});
}

TensorView<float> OutputView(std::span<const NamedTensor> outputs, std::string_view name) {
  for (const NamedTensor& output : outputs) {
    if (output.name != name) continue;
    const AnyTensor& tensor = output.tensor;
    if (tensor.dtype != DType::kFloat32) {
      Fail(ErrorCode::kDType, "{} has element type {}; outputs are float32",
           {Text(name), DTypeName(tensor.dtype)});
    }
    TensorView<float> view = {static_cast<float*>(tensor.data), tensor.shape, tensor.strides};
    if (tensor.rank < 2 || tensor.rank > 4) {
      Fail(ErrorCode::kShape, "{} has rank {}; expected 2 to 4", {Text(name), tensor.rank});
    }
    for (size_t axis = static_cast<size_t>(tensor.rank); axis < 4; ++axis) {
      view.shape[axis] = 1;
      view.strides[axis] = 1;
    }
    return view;
  }
  return {};
}

StoredOutput StoredOutputView(std::span<const NamedTensor> outputs, std::string_view name) {
  for (const NamedTensor& output : outputs) {
    if (output.name != name) continue;
    const AnyTensor& tensor = output.tensor;
    if (tensor.rank != 4) {
      Fail(ErrorCode::kShape, "{} has rank {}; expected 4", {Text(name), tensor.rank});
    }
    return {tensor.data, tensor.dtype, tensor.shape, tensor.strides};
  }
  return {};
}

}  // namespace heed
