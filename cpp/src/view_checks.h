// Checks of tensor views that every public function makes at its boundary. All throw Error, naming
// the argument, its value and what is allowed.
#ifndef HEED_SRC_VIEW_CHECKS_H_
#define HEED_SRC_VIEW_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "heed/error.h"
#include "heed/tensor.h"

namespace heed {

[[noreturn]] void Fail(ErrorCode code, const std::string& message);

// "[1, 2, 3, 4]".
std::string ShapeText(const Extents& shape);

// A number as messages show it: 1e-39 does not become 0.000000.
std::string NumberText(double value);

void CheckFinite(const std::string& name, double value);

// Extents are not negative, their product and the farthest element can be addressed.
void CheckExtents(const std::string& name, const Extents& shape, const Extents& strides,
                  size_t element_size);

void CheckShape(const std::string& name, const Extents& shape, const Extents& expected,
                const std::string& meaning);

// The view can be addressed and is there, whatever its strides.
template <typename T>
void CheckPresent(const std::string& name, const TensorView<T>& view) {
  CheckExtents(name, view.shape, view.strides, sizeof(T));
  if (view.data == nullptr && view.size() > 0) Fail(ErrorCode::kOption, name + " is missing");
}

void CheckLastIsContiguous(const std::string& name, const Extents& shape, const Extents& strides);

// CheckPresent, and the last dimension is contiguous.
template <typename T>
void CheckInput(const std::string& name, const TensorView<T>& view) {
  CheckPresent(name, view);
  CheckLastIsContiguous(name, view.shape, view.strides);
}

// CheckInput for a tensor of float32, float16 or bfloat16; other types are an Error(kDType).
void CheckStored(const std::string& name, const StoredTensor& tensor);

// CheckStored, the expected shape, and no two elements in the same place. Views of floats too.
void CheckOutput(const std::string& name, const StoredOutput& view, const Extents& expected,
                 const std::string& meaning);

// The memory that a view spans, for CheckNoAlias.
struct ViewSpan {
  const void* start;  // the first element
  uintptr_t low;      // lowest address
  uintptr_t high;     // one past the highest
  bool empty;
  bool dense;  // every byte in between belongs to the view
};

ViewSpan SpanOf(const void* data, const Extents& shape, const Extents& strides,
                size_t element_size);

template <typename T>
ViewSpan SpanOf(const TensorView<T>& view) {
  return SpanOf(view.data, view.shape, view.strides, sizeof(T));
}
ViewSpan SpanOf(const StoredTensor& tensor);
ViewSpan SpanOf(const StoredOutput& tensor);

void CheckNoAlias(const std::string& name, const ViewSpan& output, const std::string& other,
                  const ViewSpan& input);

template <typename T, typename U>
void CheckNoAlias(const std::string& name, const TensorView<T>& output, const std::string& other,
                  const TensorView<U>& input) {
  CheckNoAlias(name, SpanOf(output), other, SpanOf(input));
}

// Turns extents of 1 into strides of 0. `meaning` names the extents of `full`.
template <typename T>
TensorView<T> Broadcast(const std::string& name, TensorView<T> view, const Extents& full,
                        const std::string& meaning = "[batch, num_heads, q_len, kv_len]") {
  CheckInput(name, view);
  for (size_t i = 0; i < 4; ++i) {
    if (view.shape[i] == full[i]) {
      if (view.shape[i] == 1) view.strides[i] = 0;
      continue;
    }
    if (view.shape[i] != 1) {
      Fail(ErrorCode::kShape, name + " has shape " + ShapeText(view.shape) +
                                  ", which does not broadcast to " + ShapeText(full) + " (" +
                                  meaning + ")");
    }
    view.shape[i] = full[i];
    view.strides[i] = 0;
  }
  return view;
}

}  // namespace heed

#endif  // HEED_SRC_VIEW_CHECKS_H_
