#include "src/float_request.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "src/message.h"
#include "src/parallel/dry_run.h"
#include "src/view_checks.h"

namespace heed {
namespace {

bool IsHalf(const AnyTensor& tensor) {
  return tensor.dtype == DType::kFloat16 || tensor.dtype == DType::kBFloat16;
}

// Queries, keys and values.
bool MayBeHalf(std::string_view name) {
  for (const char* stored : {"q", "k", "v", "compress_k", "compress_v", "window_k", "window_v"}) {
    if (name == stored) return true;
  }
  return false;
}

// Calls visit(element of the tensor, in row-major order).
template <class Visit>
void ForEachElement(const AnyTensor& tensor, const Visit& visit) {
  Extents shape = {1, 1, 1, 1}, strides = {};
  for (size_t axis = 0; axis < static_cast<size_t>(tensor.rank); ++axis) {
    const size_t to = axis + 4 - static_cast<size_t>(tensor.rank);
    shape[to] = tensor.shape[axis];
    strides[to] = tensor.strides[axis];
  }
  for (int64_t a = 0; a < shape[0]; ++a) {
    for (int64_t b = 0; b < shape[1]; ++b) {
      for (int64_t c = 0; c < shape[2]; ++c) {
        for (int64_t d = 0; d < shape[3]; ++d) {
          visit(a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]);
        }
      }
    }
  }
}

int64_t SizeOf(const AnyTensor& tensor) {
  int64_t size = 1;
  for (size_t axis = 0; axis < static_cast<size_t>(tensor.rank); ++axis) {
    if (tensor.shape[axis] < 0) return 0;  // refused by whoever reads it
    if (__builtin_mul_overflow(size, tensor.shape[axis], &size)) {
      Fail(ErrorCode::kMemory, "a tensor of two-byte numbers is too large to convert");
    }
  }
  return size;
}

// The same tensor with other, contiguous memory.
AnyTensor WithFloats(const AnyTensor& tensor, float* memory) {
  const std::span<const int64_t> shape(tensor.shape);
  return ContiguousTensor(DType::kFloat32, memory, shape.first(static_cast<size_t>(tensor.rank)));
}

// At least one: a tensor without elements is there nevertheless, an address of nullptr is not.
std::vector<float> Allocate(int64_t size) {
  return VectorOf("floats to convert two-byte numbers", std::max<int64_t>(size, 1), 0.0f);
}

std::vector<float> ToFloats(const AnyTensor& tensor) {
  std::vector<float> floats = Allocate(SizeOf(tensor));
  if (tensor.data == nullptr) return floats;
  float* to = floats.data();
  if (tensor.dtype == DType::kFloat16) {
    const Float16* from = static_cast<const Float16*>(tensor.data);
    ForEachElement(tensor, [&](int64_t at) { *to++ = ToFloat(from[at]); });
  } else {
    const BFloat16* from = static_cast<const BFloat16*>(tensor.data);
    ForEachElement(tensor, [&](int64_t at) { *to++ = ToFloat(from[at]); });
  }
  return floats;
}

}  // namespace

FloatRequest::FloatRequest(const Request& request) : given_(request) {
  bool has_q = false;
  bool any = false;
  for (const auto& [name, tensor] : request.inputs) {
    if (!MayBeHalf(name)) continue;
    any = any || IsHalf(tensor);
    if (name == "q" || (name == "v" && !has_q)) output_dtype_ = tensor.dtype;
    has_q = has_q || name == "q";
  }
  if (!any) return;
  floats_ = request;
  for (auto& [name, tensor] : floats_.inputs) {
    if (!IsHalf(tensor) || !MayBeHalf(name)) continue;
    copies_.push_back(ToFloats(tensor));
    // Where there are no numbers, the absence of memory is for the mechanism to judge.
    float* memory = tensor.data == nullptr ? nullptr : copies_.back().data();
    tensor = WithFloats(tensor, memory);
  }
  Count(1);
}

FloatRequest::~FloatRequest() { Count(-1); }

void FloatRequest::Count(int sign) const {
  for (const std::vector<float>& copy : copies_) {
    DryRun::Count(sign * static_cast<int64_t>(copy.size() * sizeof(float)));
  }
}

FloatOutput::FloatOutput(std::vector<NamedTensor>& outputs) {
  for (auto& [name, tensor] : outputs) {
    if (name != "output" || !IsHalf(tensor)) continue;
    stored_ = tensor;
    floats_ = Allocate(SizeOf(tensor));
    tensor = WithFloats(tensor, floats_.data());
  }
}

void FloatOutput::Store() const {
  if (floats_.empty() || DryRun::Current() != nullptr) return;
  const float* from = floats_.data();
  if (stored_.dtype == DType::kFloat16) {
    Float16* to = static_cast<Float16*>(stored_.data);
    ForEachElement(stored_, [&](int64_t at) { to[at] = ToFloat16(*from++); });
  } else {
    BFloat16* to = static_cast<BFloat16*>(stored_.data);
    ForEachElement(stored_, [&](int64_t at) { to[at] = ToBFloat16(*from++); });
  }
}

}  // namespace heed
