// Tensor views: a pointer, four extents and four strides. Nothing here owns memory.
#ifndef HEED_TENSOR_H_
#define HEED_TENSOR_H_

#include <array>
#include <cstdint>
#include <type_traits>

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

}  // namespace heed

#endif  // HEED_TENSOR_H_
