// A tensor of int8 or float8_e4m3, made of floats, with the scales of its numbers.
#ifndef HEED_TESTS_CUDA_QUANTISED_BUFFER_H_
#define HEED_TESTS_CUDA_QUANTISED_BUFFER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "buffer.h"
#include "heed/dtype.h"
#include "heed/tensor.h"

namespace heed::testing {

struct QuantisedBuffer {
  DType dtype;
  Buffer<uint8_t> bytes;
  Buffer<float> scales;  // [batch, scale_heads, len or 1, 1]

  // Rounds the floats it is made of. A scale serves neighbouring heads, and one row or all. Scales
  // are the smallest that keep all finite numbers; gaps are NaN.
  QuantisedBuffer(Buffer<float>& from, DType type, int64_t scale_heads, int64_t scale_rows,
                  Layout layout)
      : dtype(type),
        bytes(from.shape(), layout, 0x7f),
        scales({from.shape()[0], scale_heads, scale_rows, 1}, Layout::kPadded, std::nanf("")) {
    const float largest = type == DType::kInt8 ? 127.0f : 448.0f;
    scales.ForEach([](int64_t, int64_t, int64_t, int64_t, float& scale) { scale = 0; });
    from.ForEach([&](int64_t b, int64_t h, int64_t j, int64_t, float& x) {
      float& scale = ScaleOf(b, h, j);
      if (std::isfinite(x)) scale = std::max(scale, std::abs(x) / largest);
    });
    from.ForEach([&](int64_t b, int64_t h, int64_t j, int64_t d, float& x) {
      const float scale = ScaleOf(b, h, j);
      bytes(b, h, j, d) = Round(x / scale);
      x = scale * Widen(bytes(b, h, j, d));
    });
  }

  StoredTensor view() const {
    const AnyTensor any = bytes.any(DType::kUint8);
    return {any.data, dtype, any.shape, any.strides};
  }

 private:
  float& ScaleOf(int64_t b, int64_t h, int64_t j) {
    return scales(b, h * scales.shape()[1] / bytes.shape()[1], scales.shape()[2] == 1 ? 0 : j, 0);
  }
  uint8_t Round(float x) const {
    if (dtype == DType::kFloat8E4M3) return ToFloat8E4M3(x).bits;
    return static_cast<uint8_t>(static_cast<int8_t>(std::lround(x)));
  }
  float Widen(uint8_t bits) const {
    if (dtype == DType::kFloat8E4M3) return ToFloat(Float8E4M3{bits});
    return static_cast<float>(static_cast<int8_t>(bits));
  }
};

}  // namespace heed::testing

#endif  // HEED_TESTS_CUDA_QUANTISED_BUFFER_H_
