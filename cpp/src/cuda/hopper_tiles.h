// What the consumers of all Hopper kernels do with tiles in shared memory and sums in registers.
#ifndef HEED_SRC_CUDA_HOPPER_TILES_H_
#define HEED_SRC_CUDA_HOPPER_TILES_H_

#include <cstdint>

#include "heed/dtype.h"
#include "src/cuda/accumulators.h"
#include "src/cuda/device.h"
#include "src/cuda/finite.h"
#include "src/cuda/fragments.h"

namespace heed::cuda {

// The row that half `half` of a thread's sums belongs to, among the 64 of its warp group.
HEED_DEVICE constexpr int RowInGroup(int t, int half) {
  return t / kWarp * kWarpRows + t % kWarp / 4 + 8 * half;
}
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

// Stores the sums of half `half` of a thread, times `factor`, to the row at `to`, a multiple of 4,
// of which all columns exist: an instruction for each pair, beside its rounding.
template <class Group, class T, int N>
HEED_DEVICE void StoreWholeRow(T type, int t, int half,
                               typename Group::template Registers<float, N>& sums, float factor,
                               char* to) {
  uint32_t* const words = reinterpret_cast<uint32_t*>(to) + AccumulatorCol(t % kWarp, 0) / 2;
  HEED_UNROLL for (int n = 2 * half; n < N; n += 4) {
    words[Apart(n) / 2] = Group::Pack(type, sums(t, n) * factor, sums(t, n + 1) * factor);
  }
}

template <class T>
inline constexpr int kBitsOf = 8 * static_cast<int>(sizeof(T));

// The carries of the 16 bytes at `at` (finite.h): whether they hold a number that is not finite.
template <class T, class Group>
HEED_DEVICE uint32_t PoisonCarries(Group& group, int t, int at) {
  uint32_t words[4];
  group.LoadChunk(t, at, words);
  return CarriesOfNonFinite<T>(words[0]) | CarriesOfNonFinite<T>(words[1]) |
         CarriesOfNonFinite<T>(words[2]) | CarriesOfNonFinite<T>(words[3]);
}
template <class T, class Group>
HEED_DEVICE bool HasPoison(Group& group, int t, int at) {
  return (PoisonCarries<T>(group, t, at) & kCarries<T>) != 0;
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

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HOPPER_TILES_H_
