// Tensor views: a pointer, four extents and four strides. Nothing here owns memory.
#ifndef HEED_TENSOR_H_
#define HEED_TENSOR_H_

#include <array>
#include <cstdint>
#include <type_traits>

#include "heed/dtype.h"

namespace heed {

// Four extents or four strides, outermost first: [batch, heads, len, dim].
using Extents = std::array<int64_t, 4>;

// A strided view of `[batch, heads, len, dim]`. Strides count elements, not bytes. `data ==
// nullptr` means "absent" for optional arguments. Copies are cheap; the caller keeps the memory
// alive.
template <typename T>
struct TensorView {
  T* data = nullptr;
  Extents shape{};
  Extents strides{};

  bool has_value() const { return data != nullptr; }
  int64_t size() const { return shape[0] * shape[1] * shape[2] * shape[3]; }

  T& operator()(int64_t b, int64_t h, int64_t i, int64_t d) const {
    return data[b * strides[0] + h * strides[1] + i * strides[2] + d * strides[3]];
  }

  // A view of mutable elements is accepted wherever a read-only one is asked for.
  operator TensorView<const T>() const requires(!std::is_const_v<T>) {
    return {data, shape, strides};
  }
};

// Views contiguous memory laid out as [batch, heads, len, dim].
template <typename T>
TensorView<T> Contiguous(T* data, int64_t batch, int64_t heads, int64_t len, int64_t dim) {
  return {data, {batch, heads, len, dim}, {heads * len * dim, len * dim, dim, 1}};
}

// Views contiguous memory laid out as [batch, len, heads, dim] (the layout of fused projections)
// as [batch, heads, len, dim]: no copy.
template <typename T>
TensorView<T> ContiguousBlhd(T* data, int64_t batch, int64_t len, int64_t heads, int64_t dim) {
  return {data, {batch, heads, len, dim}, {len * heads * dim, dim, heads * dim, 1}};
}

// The DType of a C++ element type that tensors of several storage types may have.
template <typename T>
inline constexpr DType kDTypeOf = DType::kFloat32;
template <>
inline constexpr DType kDTypeOf<Float16> = DType::kFloat16;
template <>
inline constexpr DType kDTypeOf<BFloat16> = DType::kBFloat16;

template <typename T>
concept StorageElement =
    std::is_same_v<T, float> || std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// A TensorView whose element type is known only at run time: float32, float16 or bfloat16. Views of
// Float16 and BFloat16 are accepted wherever one is asked for; float views explicitly, so that
// calls with float views alone mean the float functions.
struct StoredTensor {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  Extents shape{};
  Extents strides{};

  StoredTensor() = default;
  StoredTensor(const void* memory, DType type, const Extents& extents, const Extents& steps)
      : data(memory), dtype(type), shape(extents), strides(steps) {}
  template <typename T>
  requires StorageElement<std::remove_const_t<T>>
  explicit(std::is_same_v<std::remove_const_t<T>, float>) StoredTensor(const TensorView<T>& view)
      : data(view.data),
        dtype(kDTypeOf<std::remove_const_t<T>>),
        shape(view.shape),
        strides(view.strides) {}

  bool has_value() const { return data != nullptr; }
  int64_t size() const { return shape[0] * shape[1] * shape[2] * shape[3]; }

  // The first element of row [b, h, i].
  const void* Row(int64_t b, int64_t h, int64_t i) const {
    return static_cast<const char*>(data) +
           (b * strides[0] + h * strides[1] + i * strides[2]) * ElementSize(dtype);
  }
};

// The same for results.
struct StoredOutput {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  Extents shape{};
  Extents strides{};

  StoredOutput() = default;
  StoredOutput(void* memory, DType type, const Extents& extents, const Extents& steps)
      : data(memory), dtype(type), shape(extents), strides(steps) {}
  template <StorageElement T>
  StoredOutput(const TensorView<T>& view)
      : data(view.data), dtype(kDTypeOf<T>), shape(view.shape), strides(view.strides) {}

  bool has_value() const { return data != nullptr; }
  int64_t size() const { return shape[0] * shape[1] * shape[2] * shape[3]; }

  void* Row(int64_t b, int64_t h, int64_t i) const {
    return static_cast<char*>(data) +
           (b * strides[0] + h * strides[1] + i * strides[2]) * ElementSize(dtype);
  }
};

}  // namespace heed

#endif  // HEED_TENSOR_H_
