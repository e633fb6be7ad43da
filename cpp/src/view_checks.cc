#include "src/view_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "src/parallel/dry_run.h"

namespace heed {
namespace {

// Two elements of an output must not share memory. Dimensions sorted by stride must each step over
// all that the smaller ones reach: enough for every layout that permutes or slices a dense tensor.
void CheckNoOverlap(std::string_view name, const StoredOutput& view) {
  bool taken[4] = {};
  int64_t reach = 1;
  for (int round = 0; round < 4; ++round) {
    int smallest = -1;
    for (int i = 0; i < 4; ++i) {
      if (taken[i] || view.shape[i] <= 1) continue;
      if (smallest < 0 || std::abs(view.strides[i]) < std::abs(view.strides[smallest])) {
        smallest = i;
      }
    }
    if (smallest < 0) return;
    taken[smallest] = true;
    const int64_t stride = std::abs(view.strides[smallest]);
    if (stride < reach) {
      Fail(ErrorCode::kShape, "{} has shape {} and strides {}: elements overlap in memory",
           {name, view.shape, view.strides});
    }
    reach += stride * (view.shape[smallest] - 1);
  }
}

}  // namespace

std::string ShapeText(const Extents& shape) { return Join("{}", {shape}); }
std::string NumberText(double value) { return Join("{}", {value}); }

void CheckFinite(std::string_view name, double value) {
  if (!std::isfinite(value)) {
    Fail(ErrorCode::kRange, "{} = {}; it must be finite", {name, value});
  }
}

void CheckExtents(std::string_view name, const Extents& shape, const Extents& strides,
                  size_t element_size) {
  const int64_t most = static_cast<int64_t>(std::numeric_limits<ptrdiff_t>::max() / element_size);
  int64_t count = 1;
  int64_t reach = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) {
      Fail(ErrorCode::kShape, "{} has shape {}; extents are >= 0", {name, shape});
    }
    int64_t span = 0;
    const int64_t steps = shape[i] > 0 ? shape[i] - 1 : 0;
    const int64_t stride = std::max(strides[i], -std::numeric_limits<int64_t>::max());
    if (__builtin_mul_overflow(count, shape[i], &count) ||
        __builtin_mul_overflow(steps, std::abs(stride), &span) ||
        __builtin_add_overflow(reach, span, &reach) ||
        count > std::numeric_limits<int64_t>::max() / 8 || reach >= most) {
      Fail(ErrorCode::kShape, "{} has shape {} and strides {}: more elements than can be addressed",
           {name, shape, strides});
    }
  }
}

void CheckShape(std::string_view name, const Extents& shape, const Extents& expected,
                std::string_view meaning) {
  if (shape == expected) return;
  Fail(ErrorCode::kShape, "{} has shape {}; expected {} ({})", {name, shape, expected, meaning});
}

void CheckLastIsContiguous(std::string_view name, const Extents& shape, const Extents& strides) {
  if (shape[3] > 1 && strides[3] != 1) {
    Fail(ErrorCode::kShape, "{} has stride {} in its last dimension; it must be contiguous (1)",
         {name, strides[3]});
  }
}

void CheckStored(std::string_view name, const StoredTensor& tensor) {
  if (tensor.dtype != DType::kFloat32 && tensor.dtype != DType::kFloat16 &&
      tensor.dtype != DType::kBFloat16) {
    Fail(ErrorCode::kDType, "{} has element type {}; expected float32, float16 or bfloat16",
         {name, DTypeName(tensor.dtype)});
  }
  const size_t element_size = static_cast<size_t>(ElementSize(tensor.dtype));
  CheckExtents(name, tensor.shape, tensor.strides, element_size);
  if (tensor.data == nullptr && tensor.size() > 0)
    Fail(ErrorCode::kOption, "{} is missing", {name});
  CheckLastIsContiguous(name, tensor.shape, tensor.strides);
}

void CheckOutput(std::string_view name, const StoredOutput& view, const Extents& expected,
                 std::string_view meaning) {
  CheckStored(name, {view.data, view.dtype, view.shape, view.strides});
  CheckShape(name, view.shape, expected, meaning);
  if (view.size() > 0) CheckNoOverlap(name, view);
}

ViewSpan SpanOf(const void* data, const Extents& shape, const Extents& strides,
                size_t element_size) {
  ViewSpan span = {data, 0, 0, true, false};
  if (data == nullptr) return span;
  const int64_t size = shape[0] * shape[1] * shape[2] * shape[3];
  if (size == 0) return span;
  int64_t low = 0;
  int64_t high = 0;
  for (size_t i = 0; i < 4; ++i) {
    const int64_t step = (shape[i] - 1) * strides[i];
    (step < 0 ? low : high) += step;
  }
  const uintptr_t base = reinterpret_cast<uintptr_t>(data);
  const int64_t bytes = static_cast<int64_t>(element_size);
  span.low = base + static_cast<uintptr_t>(low * bytes);
  span.high = base + static_cast<uintptr_t>((high + 1) * bytes);
  span.empty = false;
  span.dense = size * bytes == static_cast<int64_t>(span.high - span.low);
  return span;
}

ViewSpan SpanOf(const StoredTensor& tensor) {
  return SpanOf(tensor.data, tensor.shape, tensor.strides,
                static_cast<size_t>(ElementSize(tensor.dtype)));
}

ViewSpan SpanOf(const StoredOutput& tensor) {
  return SpanOf(tensor.data, tensor.shape, tensor.strides,
                static_cast<size_t>(ElementSize(tensor.dtype)));
}

void CheckNoAlias(std::string_view name, const ViewSpan& output, std::string_view other,
                  const ViewSpan& input) {
  // In a dry run all that lies between two steps has the same address.
  if (output.empty || input.empty || DryRun::Current() != nullptr) return;
  // Interleaved views (q, k, v and output as slices of one fused buffer) share a span but no
  // element; only the same first element is certainly a mistake.
  const bool crossing = output.low < input.high && input.low < output.high;
  if (output.start == input.start || (output.dense && input.dense && crossing)) {
    Fail(ErrorCode::kShape, "{} overlaps {} in memory; outputs need their own", {name, other});
  }
}

}  // namespace heed
