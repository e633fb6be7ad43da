#include "oracle_memo.h"

#include <cstdint>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "heed/dtype.h"

namespace heed::testing {
namespace {

constexpr size_t kMostBytes = size_t{1} << 29;

struct Memo {
  std::string test;
  bool keeps = false;
  size_t bytes = 0;
  std::unordered_map<std::string, Values> answers;  // by KeyOf the request
};

Memo& TheMemo() {
  static Memo memo;
  return memo;
}

void Append(std::string& key, const void* bytes, size_t count) {
  key.append(static_cast<const char*>(bytes), count);
}
void Append(std::string& key, const std::string& text) {
  const size_t size = text.size();
  Append(key, &size, sizeof size);
  key += text;
}
template <typename T>
requires std::is_arithmetic_v<T>
void Append(std::string& key, T number) { Append(key, &number, sizeof number); }
void Append(std::string& key, const std::vector<double>& numbers) {
  Append(key, numbers.size());
  Append(key, numbers.data(), numbers.size() * sizeof(double));
}

// The elements in order, whatever lies between them.
void AppendElements(std::string& key, const AnyTensor& tensor, size_t element, int axis,
                    int64_t offset) {
  const char* data = static_cast<const char*>(tensor.data);
  if (axis == tensor.rank) {
    Append(key, data + offset * static_cast<int64_t>(element), element);
    return;
  }
  const size_t at = static_cast<size_t>(axis);
  const int64_t extent = tensor.shape[at], stride = tensor.strides[at];
  if (axis + 1 == tensor.rank && stride == 1) {
    Append(key, data + offset * static_cast<int64_t>(element),
           static_cast<size_t>(extent) * element);
    return;
  }
  for (int64_t n = 0; n < extent; ++n) {
    AppendElements(key, tensor, element, axis + 1, offset + n * stride);
  }
}

std::string KeyOf(const Request& request) {
  std::string key;
  Append(key, request.id);
  for (const auto& [name, tensor] : request.inputs) {
    Append(key, name);
    Append(key, static_cast<int>(tensor.dtype));
    Append(key, tensor.rank);
    for (int axis = 0; axis < tensor.rank; ++axis) {
      Append(key, tensor.shape[static_cast<size_t>(axis)]);
    }
    AppendElements(key, tensor, static_cast<size_t>(ElementSize(tensor.dtype)), 0, 0);
  }
  for (const auto& [name, value] : request.params) {
    Append(key, name);
    Append(key, value.index());
    std::visit([&](const auto& what) { Append(key, what); }, value);
  }
  return key;
}

size_t BytesOf(const std::string& key, const Values& values) {
  size_t bytes = key.size();
  for (const auto& [name, numbers] : values) bytes += numbers.size() * sizeof(double);
  return bytes;
}

}  // namespace

void KeepAnswersOf(const std::string& test) {
  Memo& memo = TheMemo();
  if (memo.test != test) memo = {test, true, 0, {}};
  memo.keeps = true;
}

void StopKeepingAnswers() { TheMemo().keeps = false; }

Values Remembered(const Request& request, const std::function<Values(const Request&)>& ask) {
  Memo& memo = TheMemo();
  if (!memo.keeps) return ask(request);
  std::string key = KeyOf(request);
  const auto known = memo.answers.find(key);
  if (known != memo.answers.end()) return known->second;
  Values values = ask(request);
  const size_t bytes = BytesOf(key, values);
  if (memo.bytes + bytes <= kMostBytes) {
    memo.bytes += bytes;
    memo.answers.emplace(std::move(key), values);
  }
  return values;
}

}  // namespace heed::testing
