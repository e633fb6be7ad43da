// What the consumers of all Hopper kernels do with tiles in shared memory and sums in registers.
#ifndef HEED_SRC_CUDA_HOPPER_TILES_H_
#define HEED_SRC_CUDA_HOPPER_TILES_H_

#include <cstdint>

#include "heed/dtype.h"
#include "src/cuda/device.h"
#include "src/cuda/fragments.h"
#include "src/cuda/plugs.h"

namespace heed::cuda {

// The row that half `half` of a thread's sums belongs to, among the 64 of its warp group.
HEED_DEVICE constexpr int RowInGroup(int t, int half) {
  return t / kWarp * kWarpRows + t % kWarp / 4 + 8 * half;
}
// Sum n of a thread is that of column AccumulatorCol(lane, 0) + Apart(n).
HEED_DEVICE constexpr int Apart(int n) { return n / 4 * 8 + n % 2; }

// Score n of a thread is that of key FirstKey() + Apart(n), of the part that begins with key
// `part_first`; half a warp's row has every eighth pair of keys.
template <class Group>
HEED_DEVICE int FirstKey(int t, int32_t part_first) {
  return Group::Opaque(part_first + AccumulatorCol(t % kWarp, 0));
}
// Whether the row of score n sees its key. `row_keys` has begin and end of what the first of a
// thread's two rows sees, then those of the second.
template <class RowKeysOfThread>
HEED_DEVICE bool Sees(RowKeysOfThread& row_keys, int t, int first, int n) {
  const int half = n % 4 / 2;
  return Apart(n) >= row_keys(t, 2 * half) - first && Apart(n) < row_keys(t, 2 * half + 1) - first;
}

// Whether a number is infinite or NaN: all bits of its exponent are set. float8 has no infinity,
// and a NaN where all bits but the sign are.
HEED_DEVICE constexpr bool IsNotFinite(Float16, uint16_t bits) { return (~bits & 0x7c00) == 0; }
HEED_DEVICE constexpr bool IsNotFinite(BFloat16, uint16_t bits) { return (~bits & 0x7f80) == 0; }
HEED_DEVICE constexpr bool IsNotFinite(Float8E4M3, uint16_t bits) { return (~bits & 0x7f) == 0; }

template <class T>
inline constexpr int kBitsOf = 8 * static_cast<int>(sizeof(T));

// Whether the 16 bytes at `at` hold a number that is not finite.
template <class Group, class T>
HEED_DEVICE bool HasPoison(Group& group, T type, int t, int at) {
  uint32_t words[4];
  group.LoadChunk(t, at, words);
  bool found = false;
  HEED_UNROLL for (int n = 0; n < 4; ++n) {
    HEED_UNROLL for (int bit = 0; bit < 32; bit += kBitsOf<T>) {
      found = found || IsNotFinite(type, static_cast<uint16_t>(words[n] >> bit));
    }
  }
  return found;
}
// Such numbers become 0.
template <class Group, class T>
HEED_DEVICE void ClearPoison(Group& group, T type, int t, int at) {
  constexpr uint32_t kOnes = (1u << kBitsOf<T>)-1;
  uint32_t words[4];
  group.LoadChunk(t, at, words);
  HEED_UNROLL for (int n = 0; n < 4; ++n) {
    HEED_UNROLL for (int bit = 0; bit < 32; bit += kBitsOf<T>) {
      if (IsNotFinite(type, static_cast<uint16_t>(words[n] >> bit))) words[n] &= ~(kOnes << bit);
    }
  }
  group.StoreChunk(t, at, words);
}

template <class Group, int N>
HEED_DEVICE void StoreFloats(int t, int half, typename Group::template Registers<float, N>& sums,
                             float factor, int width, char* to) {
  const int column = Group::Opaque(AccumulatorCol(t % kWarp, 0));
  HEED_UNROLL for (int n = 2 * half; n < N; n += n % 2 == 0 ? 1 : 3) {
    const int d = column + Apart(n);
    if (d < width) StoreAs(DType::kFloat32, to, d, sums(t, n) * factor);
  }
}
// Two neighbours at once where both exist and the row is aligned to them.
template <class Group, int N, class T>
HEED_DEVICE void StorePairs(T type, int t, int half,
                            typename Group::template Registers<float, N>& sums, float factor,
                            int width, char* to) {
  const bool aligned = reinterpret_cast<uintptr_t>(to) % 4 == 0;
  const int column = Group::Opaque(AccumulatorCol(t % kWarp, 0));
  HEED_UNROLL for (int n = 2 * half; n < N; n += 4) {
    const int d = column + Apart(n);
    if (d >= width) continue;
    const uint32_t pair = Group::Pack(type, sums(t, n) * factor, sums(t, n + 1) * factor);
    if (aligned && d + 1 < width) {
      reinterpret_cast<uint32_t*>(to)[d / 2] = pair;
      continue;
    }
    reinterpret_cast<uint16_t*>(to)[d] = static_cast<uint16_t>(pair);
    if (d + 1 < width) reinterpret_cast<uint16_t*>(to)[d + 1] = pair >> 16;
  }
}
// Stores the sums of half `half` of a thread, times `factor`, to their columns of the row at `to`,
// which has `width` of them.
template <class Group, int N>
HEED_DEVICE void StoreSumsOfRow(int t, int half, typename Group::template Registers<float, N>& sums,
                                float factor, DType dtype, int width, char* to) {
  if (dtype == DType::kFloat32) StoreFloats<Group, N>(t, half, sums, factor, width, to);
  if (dtype == DType::kFloat16) {
    StorePairs<Group, N>(Float16{}, t, half, sums, factor, width, to);
  }
  if (dtype == DType::kBFloat16) {
    StorePairs<Group, N>(BFloat16{}, t, half, sums, factor, width, to);
  }
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_TILES_H_
