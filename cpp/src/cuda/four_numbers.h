// Four neighbouring numbers of a row of results, as one store where the row is aligned to it.
#ifndef HEED_SRC_CUDA_FOUR_NUMBERS_H_
#define HEED_SRC_CUDA_FOUR_NUMBERS_H_

#include <cstdint>

#include "heed/dtype.h"
#include "src/cuda/device.h"

namespace heed::cuda {

struct alignas(16) FourFloats {
  float x[4];
};

// Where number n of a row of a type of 16 or 32 bits lies.
HEED_DEVICE char* ElementOf(char* row, DType dtype, int n) {
  return row + n * (dtype == DType::kFloat32 ? 4 : 2);
}

// A number as element n of the row, rounded as StoreFour() does: NaN too has the same bits.
template <class Block>
HEED_DEVICE void StoreOne(DType dtype, char* row, int n, float x) {
  if (dtype == DType::kFloat32) {
    reinterpret_cast<float*>(row)[n] = x;
    return;
  }
  const uint32_t pair =
      dtype == DType::kFloat16 ? Block::Pack(Float16{}, x, 0.0f) : Block::Pack(BFloat16{}, x, 0.0f);
  reinterpret_cast<uint16_t*>(row)[n] = static_cast<uint16_t>(pair);
}

template <class Block, class T>
HEED_DEVICE void StoreFourPairs(T type, void* to, const float (&x)[4]) {
  struct alignas(8) Pairs {
    uint32_t pairs[2];
  };
  const Pairs pairs = {{Block::Pack(type, x[0], x[1]), Block::Pack(type, x[2], x[3])}};
  if (reinterpret_cast<uintptr_t>(to) % 8 == 0) {
    *static_cast<Pairs*>(to) = pairs;
    return;
  }
  HEED_UNROLL for (int n = 0; n < 4; ++n) {
    static_cast<uint16_t*>(to)[n] = static_cast<uint16_t>(pairs.pairs[n / 2] >> n % 2 * 16);
  }
}

// Rounds them to the type, float32, float16 or bfloat16.
template <class Block>
HEED_DEVICE void StoreFour(DType dtype, void* to, const float (&x)[4]) {
  if (dtype == DType::kFloat16) return StoreFourPairs<Block>(Float16{}, to, x);
  if (dtype == DType::kBFloat16) return StoreFourPairs<Block>(BFloat16{}, to, x);
  if (reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    *static_cast<FourFloats*>(to) = {{x[0], x[1], x[2], x[3]}};
    return;
  }
  HEED_UNROLL for (int n = 0; n < 4; ++n) static_cast<float*>(to)[n] = x[n];
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_FOUR_NUMBERS_H_
