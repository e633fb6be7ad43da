// A tensor in any storage type, made of floats.
#ifndef HEED_TESTS_CUDA_STORED_BUFFER_H_
#define HEED_TESTS_CUDA_STORED_BUFFER_H_

#include <cmath>
#include <cstdint>

#include "buffer.h"
#include "heed/dtype.h"
#include "heed/tensor.h"

namespace heed::testing {

class StoredBuffer {
 public:
  // Rounds the floats it is made of. Gaps are NaN. float32 keeps the layout it comes with.
  StoredBuffer(Buffer<float>& from, DType dtype, Layout layout) : dtype_(dtype) {
    if (dtype != DType::kFloat32) {
      halves_ = Buffer<uint16_t>(from.shape(), layout, 0x7fff);
      from.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
        halves_(b, h, i, d) = Round(x);
        x = Widen(halves_(b, h, i, d));
      });
    }
    floats_ = from;
  }

  StoredTensor view() const {
    const AnyTensor tensor = any();
    return {tensor.data, dtype_, tensor.shape, tensor.strides};
  }
  StoredOutput output() {
    const AnyTensor tensor = any();
    return {tensor.data, dtype_, tensor.shape, tensor.strides};
  }
  bool GapsAreUntouched() const {
    return dtype_ == DType::kFloat32 ? floats_.GapsAreUntouched() : halves_.GapsAreUntouched();
  }
  Buffer<float> Widened() const {
    Buffer<float> wide = floats_;
    if (dtype_ == DType::kFloat32) return wide;
    wide.ForEach([&](int64_t b, int64_t h, int64_t i, int64_t d, float& x) {
      x = Widen(halves_(b, h, i, d));
    });
    return wide;
  }

 private:
  AnyTensor any() const {
    return dtype_ == DType::kFloat32 ? floats_.any(dtype_) : halves_.any(dtype_);
  }
  uint16_t Round(float x) const {
    return dtype_ == DType::kFloat16 ? ToFloat16(x).bits : ToBFloat16(x).bits;
  }
  float Widen(uint16_t bits) const {
    return dtype_ == DType::kFloat16 ? ToFloat(Float16{bits}) : ToFloat(BFloat16{bits});
  }

  DType dtype_;
  Buffer<float> floats_;
  Buffer<uint16_t> halves_;
};

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_STORED_BUFFER_H_
