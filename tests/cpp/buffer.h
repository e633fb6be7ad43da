// Tensors that own their memory, in every layout a caller may use.
#ifndef HEED_TESTS_BUFFER_H_
#define HEED_TESTS_BUFFER_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "heed/request.h"
#include "heed/tensor.h"

namespace heed::testing {

enum class Layout {
  kDense,     // [batch, heads, len, dim]
  kBlhd,      // [batch, len, heads, dim] seen as [batch, heads, len, dim]
  kPadded,    // gaps after every row, head and batch entry, start not aligned
  kReversed,  // len runs backwards: negative stride
  kOneBatch,  // every batch entry is the same memory: stride 0; for inputs only
};

template <typename T>
class Buffer {
 public:
  Buffer() = default;

  // All memory, gaps included, starts as `fill`.
  Buffer(Extents shape, Layout layout, T fill) : shape_(shape), fill_(fill) {
    const auto [batch, heads, len, dim] = shape;
    switch (layout) {
      case Layout::kDense:
        strides_ = {heads * len * dim, len * dim, dim, 1};
        break;
      case Layout::kBlhd:
        strides_ = {heads * len * dim, dim, heads * dim, 1};
        break;
      case Layout::kPadded:
        strides_ = {heads * (len * (dim + 3) + 7) + 5, len * (dim + 3) + 7, dim + 3, 1};
        origin_ = 1;
        break;
      case Layout::kReversed:
        strides_ = {heads * len * dim, len * dim, -dim, 1};
        origin_ = len == 0 ? 0 : (len - 1) * dim;
        break;
      case Layout::kOneBatch:
        strides_ = {0, len * dim, dim, 1};
        break;
    }
    int64_t reach = origin_ + 1;
    for (size_t axis = 0; axis < 4; ++axis) {
      if (strides_[axis] > 0) reach += strides_[axis] * std::max<int64_t>(shape[axis] - 1, 0);
    }
    memory_.assign(static_cast<size_t>(reach + kTail), fill);
  }

  bool has_value() const { return !memory_.empty(); }
  const Extents& shape() const { return shape_; }
  int64_t size() const { return shape_[0] * shape_[1] * shape_[2] * shape_[3]; }
  int64_t batch_stride() const { return strides_[0]; }

  TensorView<T> view() { return {memory_.data() + origin_, shape_, strides_}; }
  TensorView<const T> view() const { return {memory_.data() + origin_, shape_, strides_}; }

  T& operator()(int64_t b, int64_t h, int64_t i, int64_t d) { return view()(b, h, i, d); }
  const T& operator()(int64_t b, int64_t h, int64_t i, int64_t d) const {
    return view()(b, h, i, d);
  }

  // Calls `visit(b, h, i, d, element)` for every element.
  template <typename Visit>
  void ForEach(Visit&& visit) {
    for (int64_t b = 0; b < shape_[0]; ++b) {
      for (int64_t h = 0; h < shape_[1]; ++h) {
        for (int64_t i = 0; i < shape_[2]; ++i) {
          for (int64_t d = 0; d < shape_[3]; ++d) visit(b, h, i, d, (*this)(b, h, i, d));
        }
      }
    }
  }

  // The elements in the order [batch, heads, len, dim], without gaps.
  std::vector<T> Elements() const {
    std::vector<T> elements;
    const_cast<Buffer*>(this)->ForEach(
        [&](int64_t, int64_t, int64_t, int64_t, T& element) { elements.push_back(element); });
    return elements;
  }

  // Whether the memory between the elements still holds the bits of `fill`.
  bool GapsAreUntouched() const {
    Buffer blank = *this;
    blank.ForEach([&](int64_t, int64_t, int64_t, int64_t, T& element) { element = fill_; });
    const std::vector<T> untouched(memory_.size(), fill_);
    return std::memcmp(blank.memory_.data(), untouched.data(), untouched.size() * sizeof(T)) == 0;
  }

  // The same tensor for a request; `rank` 3 drops a last extent of 1.
  AnyTensor any(DType dtype, int rank = 4) const {
    return {dtype, const_cast<T*>(memory_.data() + origin_), rank, shape_, strides_};
  }

 private:
  // Elements behind the last one that GapsAreUntouched() looks at too. None for memory checkers,
  // which see reads behind the memory as well.
#ifdef HEED_EXACT_MEMORY
  static constexpr int64_t kTail = 0;
#else
  static constexpr int64_t kTail = 8;
#endif

  Extents shape_{};
  Extents strides_{};
  int64_t origin_ = 0;
  T fill_{};
  std::vector<T> memory_;
};

}  // namespace heed::testing

#endif  // HEED_TESTS_BUFFER_H_
