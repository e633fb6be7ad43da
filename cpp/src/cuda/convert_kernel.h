// A tensor in another type, number by number.
#ifndef HEED_SRC_CUDA_CONVERT_KERNEL_H_
#define HEED_SRC_CUDA_CONVERT_KERNEL_H_

#include <cstdint>

#include "src/cuda/chunk_params.h"
#include "src/cuda/plugs.h"
#include "src/cuda/rows_in_memory.h"

namespace heed::cuda {

// Numbers [index * kConvertNumbers, ...) of a tensor.
template <class Block>
HEED_DEVICE void ConvertNumbers(Block& block, const ConvertParams& p, int64_t index) {
  block.Each([&](int t) {
    HEED_NO_UNROLL for (int x = t; x < kConvertNumbers; x += kBlockThreads) {
      const int64_t n = index * kConvertNumbers + x;
      if (n >= p.numbers) return;
      const int64_t row = n / p.from.width, h = row / p.len % p.heads, b = row / p.len / p.heads;
      const int64_t i = row % p.len;
      const char* from =
          p.from.data + b * p.from.strides[0] + h * p.from.strides[1] + i * p.from.strides[2];
      char* to = p.to.data + b * p.to.strides[0] + h * p.to.strides[1] + i * p.to.strides[2];
      const int d = static_cast<int>(n % p.from.width);
      StoreAs(p.to.dtype, to, d, LoadAs(p.from.dtype, from, d));
    }
  });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_CONVERT_KERNEL_H_
