// Checks of tensor views that every public function makes at its boundary. All throw Error, naming
// the argument, its value and what is allowed.
#ifndef HEED_SRC_VIEW_CHECKS_H_
#define HEED_SRC_VIEW_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/error.h"
#include "heed/tensor.h"
#include "src/from_javascript.h"
#include "src/message.h"

namespace heed {

// "[1, 2, 3, 4]".
std::string ShapeText(const Extents& shape);

// "1e-39", where std::to_string() says "0.000000".
std::string NumberText(double value);

void CheckFinite(std::string_view name, double value);

// A scale as float32, finite there as well, and 0 only when it is given as 0.
float CheckScale(double scale);

// One of the values of an enum, which count from 0 to `last`.
template <typename Enum>
void CheckEnum(std::string_view name, Enum value, Enum last) {
  if (kFromJavaScript) return;
  const int number = static_cast<int>(value), most = static_cast<int>(last);
  if (number >= 0 && number <= most) return;
  Fail(ErrorCode::kOption, "{} = {}; its enum has values from 0 to {}", {name, number, most});
}

// `count` times the value. Throws Error(kMemory), naming them, where there is no room.
template <typename T>
std::vector<T> VectorOf(std::string_view name, int64_t count, T value) {
  try {
    return std::vector<T>(static_cast<size_t>(count), value);
  } catch (const std::exception&) {
    Fail(ErrorCode::kMemory, "could not allocate {} {}", {count, name});
  }
}

// Extents are not negative, their product and the farthest element can be addressed.
void CheckExtents(std::string_view name, const Extents& shape, const Extents& strides,
                  size_t element_size);

void CheckShape(std::string_view name, const Extents& shape, const Extents& expected,
                std::string_view meaning);

// The view can be addressed and is there, whatever its strides.
template <typename T>
void CheckPresent(std::string_view name, const TensorView<T>& view) {
  CheckExtents(name, view.shape, view.strides, sizeof(T));
  if (view.data == nullptr && view.size() > 0) Fail(ErrorCode::kOption, "{} is missing", {name});
}

void CheckLastIsContiguous(std::string_view name, const Extents& shape, const Extents& strides);

// CheckPresent, and the last dimension is contiguous.
template <typename T>
void CheckInput(std::string_view name, const TensorView<T>& view) {
  CheckPresent(name, view);
  CheckLastIsContiguous(name, view.shape, view.strides);
}

// CheckInput for a tensor of float32, float16 or bfloat16; other types are an Error(kDType).
void CheckStored(std::string_view name, const StoredTensor& tensor);

// CheckStored, the expected shape, and no two elements in the same place. Views of floats too.
void CheckOutput(std::string_view name, const StoredOutput& view, const Extents& expected,
                 std::string_view meaning);

// The memory of a view, for CheckNoAlias.
struct ViewSpan {
  const void* start;  // the first element
  uintptr_t low;      // lowest address
  uintptr_t high;     // one past the highest
  bool empty;
  int64_t element_bytes;
  Extents shape;
  Extents byte_strides;  // 0 where the extent is 1
};

ViewSpan SpanOf(const void* data, const Extents& shape, const Extents& strides,
                size_t element_size);

template <typename T>
ViewSpan SpanOf(const TensorView<T>& view) {
  return SpanOf(view.data, view.shape, view.strides, sizeof(T));
}
template <typename T>
ViewSpan SpanOf(std::span<T> values) {
  return SpanOf(values.data(), {1, 1, 1, static_cast<int64_t>(values.size())}, {0, 0, 0, 1},
                sizeof(T));
}
ViewSpan SpanOf(const StoredTensor& tensor);
ViewSpan SpanOf(const StoredOutput& tensor);

// Throws unless the output shares no byte with the other view. Views that interleave pass (q, k, v
// and output as parts of one packed buffer); only odd strides can hide what is shared.
void CheckNoAlias(std::string_view name, const ViewSpan& output, std::string_view other,
                  const ViewSpan& input);

template <typename T, typename U>
void CheckNoAlias(std::string_view name, const TensorView<T>& output, std::string_view other,
                  const TensorView<U>& input) {
  CheckNoAlias(name, SpanOf(output), other, SpanOf(input));
}

// Turns extents of 1 into strides of 0. `meaning` names the extents of `full`.
template <typename T>
TensorView<T> Broadcast(std::string_view name, TensorView<T> view, const Extents& full,
                        std::string_view meaning = "[batch, num_heads, q_len, kv_len]") {
  CheckInput(name, view);
  for (size_t i = 0; i < 4; ++i) {
    if (view.shape[i] == full[i]) {
      if (view.shape[i] == 1) view.strides[i] = 0;
      continue;
    }
    if (view.shape[i] != 1) {
      Fail(ErrorCode::kShape, "{} has shape {}, which does not broadcast to {} ({})",
           {name, view.shape, full, meaning});
    }
    view.shape[i] = full[i];
    view.strides[i] = 0;
  }
  return view;
}

}  // namespace heed

#endif  // HEED_SRC_VIEW_CHECKS_H_
