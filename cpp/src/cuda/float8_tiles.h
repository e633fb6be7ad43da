// Tiles of float8 values, transposed in shared memory: wgmma reads 8-bit operands only with the k
// of the product (here the keys) contiguous, and TMA brings rows of a key each (FlashAttention-3,
// arXiv:2407.08608, section 3.3).
//
// The order of keys within a transposed row is free, as long as weights stand in the same one. It
// is chosen so that each thread has the weights that it needs as operand A, where the first product
// left them as sums: among 32 keys, position 16 g + 4 q + 2 m + e holds key 16 g + 8 m + 2 q + (e ^
// g). The last term lets eight threads that read neighbouring words meet all banks.
#ifndef HEED_SRC_CUDA_FLOAT8_TILES_H_
#define HEED_SRC_CUDA_FLOAT8_TILES_H_

#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/hopper_layout.h"

namespace heed::cuda {

// Weights of float8 are 2^8 times those of softmax, at most 256 of the 448 that the type holds:
// what is below 2^-14 of the largest weight loses precision, not what is below 2^-6.
inline constexpr float kFloat8Lift = 8;  // in base 2
inline constexpr float kFloat8Unlift = 0x1p-8f;

// The key at position `position` of a transposed row, and the position of a key.
HEED_DEVICE constexpr int KeyAtPosition(int position) {
  const int g = position / 16 % 2;
  const int q = position % 16 / 4, m = position % 4 / 2, e = position % 2;
  return position / 16 * 16 + 8 * m + 2 * q + (e ^ g);
}
HEED_DEVICE constexpr int PositionOfKey(int key) {
  const int g = key / 16 % 2;
  const int m = key % 16 / 8, q = key % 8 / 2, e = key % 2 ^ g;
  return key / 16 * 16 + 4 * q + 2 * m + e;
}
// Where the number of `key` in column `column` lies in a transposed tile.
HEED_DEVICE constexpr int TransposedByte(int columns, int key, int column) {
  return SwizzledByte(columns, column, PositionOfKey(key));
}

// The bytes of low and high (those from 4 on) that the four digits of `choice` name, lowest first.
HEED_DEVICE uint32_t PickBytes(uint32_t low, uint32_t high, uint32_t choice) {
#ifdef __CUDA_ARCH__
  return __byte_perm(low, high, choice);
#else
  const uint64_t bytes = uint64_t{high} << 32 | low;
  uint32_t picked = 0;
  for (int n = 0; n < 4; ++n) {
    picked |= static_cast<uint32_t>(bytes >> (choice >> 4 * n & 7) * 8 & 0xff) << 8 * n;
  }
  return picked;
#endif
}

// Four rows of four bytes become four columns.
HEED_DEVICE void TransposeBytes(const uint32_t (&rows)[4], uint32_t (&columns)[4]) {
  const uint32_t upper_low = PickBytes(rows[0], rows[1], 0x5140);
  const uint32_t upper_high = PickBytes(rows[0], rows[1], 0x7362);
  const uint32_t lower_low = PickBytes(rows[2], rows[3], 0x5140);
  const uint32_t lower_high = PickBytes(rows[2], rows[3], 0x7362);
  columns[0] = PickBytes(upper_low, lower_low, 0x5410);
  columns[1] = PickBytes(upper_low, lower_low, 0x7632);
  columns[2] = PickBytes(upper_high, lower_high, 0x5410);
  columns[3] = PickBytes(upper_high, lower_high, 0x7632);
}

// A thread's share of a tile: 16 columns of four keys at a time. Of a warp's 32 threads each has
// another word of the same columns.
template <class Shape, class Group>
HEED_DEVICE void TransposeValues(Group& group, int t, int raw, int to) {
  constexpr int kWords = Shape::kKeys / 4;  // of a transposed row
  const int word = t % kWords;
  HEED_NO_UNROLL for (int chunk = t / kWords; chunk < Shape::kValueDim / 16;
                      chunk += kGroupThreads / kWords) {
    uint32_t rows[4][4];
    HEED_UNROLL for (int n = 0; n < 4; ++n) {
      const int key = KeyAtPosition(4 * word + n);
      group.LoadChunk(t, raw + SwizzledByte(Shape::kKeys, key, 16 * chunk), rows[n]);
    }
    HEED_UNROLL for (int four = 0; four < 4; ++four) {
      uint32_t columns[4];
      TransposeBytes({rows[0][four], rows[1][four], rows[2][four], rows[3][four]}, columns);
      HEED_UNROLL for (int n = 0; n < 4; ++n) {
        const int column = 16 * chunk + 4 * four + n;
        group.StoreWord(t, to + SwizzledByte(Shape::kValueDim, column, 4 * word), columns[n]);
      }
    }
  }
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_FLOAT8_TILES_H_
