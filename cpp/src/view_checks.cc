#include "src/view_checks.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstdint>
#include <limits>

#include "src/from_javascript.h"
#include "src/parallel/dry_run.h"
#include "src/sort.h"

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

// A number that can be added 0 to `count` times.
struct Step {
  int64_t size, count;
  auto operator<=>(const Step&) const = default;
};

// Whether some sum of steps lies in [low, high]. Larger sizes come last. With strides of common
// layouts a few sums are looked at; what takes more than `tries` of them counts as no.
bool Reaches(std::span<const Step> steps, int64_t low, int64_t high, int& tries) {
  if (steps.empty()) return low <= 0 && high >= 0;
  const Step last = steps.back();
  steps = steps.first(steps.size() - 1);
  int64_t rest = 0;
  for (const Step& step : steps) rest += step.size * step.count;
  const int64_t missing = std::max<int64_t>(low - rest, 0);
  const int64_t most = high < 0 ? -1 : std::min(last.count, high / last.size);
  for (int64_t n = (missing + last.size - 1) / last.size; n <= most; ++n) {
    if (--tries < 0) return false;
    if (Reaches(steps, low - n * last.size, high - n * last.size, tries)) return true;
  }
  return false;
}

// Whether an element of one view shares a byte with one of the other: whether the distance between
// the two, from the top of the first view to the bottom of the second and back by steps of either,
// can be smaller than they are. Steps of the same size are one step, and those no larger than the
// elements with all that was added to them leave no gaps: what remains is the outer dimensions of
// views that interleave.
bool SharesBytes(const ViewSpan& a, const ViewSpan& b) {
  constexpr uintptr_t kMostBytes = uintptr_t{1} << (sizeof(uintptr_t) * 8 - 3);
  if (a.high - a.low > kMostBytes || b.high - b.low > kMostBytes) return false;
  Step steps[8];
  size_t count = 0;
  for (const ViewSpan* view : {&a, &b}) {
    for (size_t i = 0; i < 4; ++i) {
      const int64_t size = std::abs(view->byte_strides[i]);
      if (size == 0) continue;
      Step* const same =
          std::find_if(steps, steps + count, [&](const Step& s) { return s.size == size; });
      if (same == steps + count) steps[count++] = {size, 0};
      same->count += view->shape[i] - 1;
    }
  }
  HeapSort(steps, steps + count);
  const int64_t gap = static_cast<int64_t>(a.high - b.low);
  int64_t low = gap - a.element_bytes - b.element_bytes + 1;
  const int64_t high = gap - 1;
  size_t solid = 0;
  for (; solid < count && steps[solid].size <= high - low + 1; ++solid) {
    low -= steps[solid].size * steps[solid].count;
  }
  int tries = 10000;
  return Reaches(std::span<const Step>(steps, count).subspan(solid), low, high, tries);
}

}  // namespace

std::string ShapeText(const Extents& shape) { return Join("{}", {shape}); }
std::string NumberText(double value) { return Join("{}", {value}); }

void CheckFinite(std::string_view name, double value) {
  if (!std::isfinite(value)) {
    Fail(ErrorCode::kRange, "{} = {}; it must be finite", {name, value});
  }
}

float CheckScale(double scale) {
  CheckFinite("scale", scale);
  const float rounded = static_cast<float>(scale);
  CheckFinite("scale (as float32)", rounded);
  if (rounded == 0 && scale != 0) {
    Fail(ErrorCode::kRange, "scale = {}; as float32 it is 0, which is given as 0", {scale});
  }
  return rounded;
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
  const int64_t bytes = static_cast<int64_t>(element_size);
  ViewSpan span = {data, 0, 0, true, bytes, shape, {}};
  if (data == nullptr) return span;
  if (shape[0] * shape[1] * shape[2] * shape[3] == 0) return span;
  int64_t low = 0;
  int64_t high = 0;
  for (size_t i = 0; i < 4; ++i) {
    if (shape[i] == 1) continue;
    span.byte_strides[i] = strides[i] * bytes;
    const int64_t step = (shape[i] - 1) * strides[i];
    (step < 0 ? low : high) += step;
  }
  const uintptr_t base = reinterpret_cast<uintptr_t>(data);
  span.low = base + static_cast<uintptr_t>(low * bytes);
  span.high = base + static_cast<uintptr_t>((high + 1) * bytes);
  span.empty = false;
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
  if (kFromJavaScript) return;
  if (output.empty || input.empty) return;
  if (output.low >= input.high || input.low >= output.high) return;
  // In a dry run all that lies between two steps has the same address.
  if (DryRun::Current() != nullptr) return;
  if (output.start == input.start || SharesBytes(output, input)) {
    Fail(ErrorCode::kShape, "{} overlaps {} in memory; outputs need their own", {name, other});
  }
}

}  // namespace heed
