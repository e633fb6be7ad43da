// What threads do with the sums that mma.sync and wgmma leave with them (fragments.h).
#ifndef HEED_SRC_CUDA_ACCUMULATORS_H_
#define HEED_SRC_CUDA_ACCUMULATORS_H_

#include <cstdint>

#include "heed/dtype.h"
#include "src/cuda/device.h"
#include "src/cuda/fragments.h"
#include "src/cuda/plugs.h"

namespace heed::cuda {

// Sum n of a thread is that of column AccumulatorCol(lane, 0) + Apart(n).
HEED_DEVICE constexpr int Apart(int n) { return n / 4 * 8 + n % 2; }

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

#endif  // HEED_SRC_CUDA_ACCUMULATORS_H_
