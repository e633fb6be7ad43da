// Numbers that are not finite in a tile of shared memory, on the base path.
#ifndef HEED_SRC_CUDA_TILE_POISON_H_
#define HEED_SRC_CUDA_TILE_POISON_H_

#include <cstdint>

#include "src/cuda/device.h"
#include "src/cuda/finite.h"

namespace heed::cuda {

// Whether the tile of keys or values has any; a barrier. A thread has `kAtOnce` loads of 16 bytes
// under way, which take registers.
template <class Products, int kAtOnce, class Block, class Shared>
HEED_DEVICE bool HasPoison(Block& block, const Shared& tile) {
  using Element = typename Products::Element;
  constexpr int kChunk = 16 / static_cast<int>(sizeof(Element));
  constexpr int kChunks = Products::kDim / kChunk;
  constexpr int kOfThread = Products::kKeys * kChunks / kBlockThreads;
  static_assert(Products::kKeys * kChunks % kBlockThreads == 0 && kOfThread % kAtOnce == 0);
  return block.Any([&](int t) {
    bool finite = true;
    uint32_t carries = 0;
    HEED_NO_UNROLL for (int first = 0; first < kOfThread; first += kAtOnce) {
      HEED_UNROLL for (int n = first; n < first + kAtOnce; ++n) {
        const int c = t + n * kBlockThreads;
        const int at = c / kChunks * Products::kStride + c % kChunks * kChunk;
        if constexpr (sizeof(Element) == 4) {
          float x[4];
          tile.LoadFour(t, at, x);
          HEED_UNROLL for (int i = 0; i < 4; ++i) finite = finite && IsFinite(x[i]);
        } else {
          uint32_t pairs[4];
          tile.LoadEight(t, at, pairs);
          HEED_UNROLL for (int i = 0; i < 4; ++i) carries |= CarriesOfNonFinite<Element>(pairs[i]);
        }
      }
    }
    if constexpr (sizeof(Element) == 2) finite = (carries & kCarries<Element>) == 0;
    return !finite;
  });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_TILE_POISON_H_
