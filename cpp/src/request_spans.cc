#include "src/request_spans.h"

#include <algorithm>
#include <string>

#include "src/message.h"
#include "src/output_spans.h"

namespace heed {
namespace {

ViewSpan CheckedSpan(const NamedTensor& named) {
  const AnyTensor& tensor = named.tensor;
  Extents shape = {1, 1, 1, 1}, strides = {};
  for (size_t axis = 0; axis < static_cast<size_t>(std::clamp(tensor.rank, 0, 4)); ++axis) {
    shape[axis] = tensor.shape[axis];
    strides[axis] = tensor.strides[axis];
  }
  const size_t element_size = static_cast<size_t>(ElementSize(tensor.dtype));
  CheckExtents(named.name, shape, strides, element_size);
  return SpanOf(tensor.data, shape, strides, element_size);
}

bool IsFloats(const NamedTensor& named) { return named.tensor.dtype == DType::kFloat32; }

void CheckPair(const char* text, const NamedTensor& written, const ViewSpan& output,
               const char* other, const NamedTensor& read) {
  const ViewSpan input = CheckedSpan(read);
  if (output.empty || input.empty) return;
  if (output.low >= input.high || input.low >= output.high) return;
  CheckNoAlias(Join(text, {written.name}), output, Join(other, {read.name}), input);
}

}  // namespace

void CheckResultsApart(const TensorList& written) {
  for (size_t n = 1; n < written.tensors.size(); ++n) {
    const NamedTensor& output = written.tensors[n];
    const ViewSpan span = CheckedSpan(output);
    for (const NamedTensor& other : written.tensors.first(n)) {
      CheckPair(written.text, output, span, written.text, other);
    }
  }
}

void CheckResultsApart(const TensorList& written, const TensorList& read) {
  for (const NamedTensor& output : written.tensors) {
    const ViewSpan span = CheckedSpan(output);
    for (const NamedTensor& input : read.tensors) {
      CheckPair(written.text, output, span, read.text, input);
    }
  }
}

void CheckResultsReplaceOrApart(const TensorList& written, const TensorList& read) {
  for (const NamedTensor& output : written.tensors) {
    const ViewSpan span = CheckedSpan(output);
    for (const NamedTensor& input : read.tensors) {
      const bool floats = IsFloats(output) && IsFloats(input);
      if (floats && IsSameView(span, CheckedSpan(input))) continue;
      CheckPair(written.text, output, span, read.text, input);
    }
  }
}

}  // namespace heed
