// Rows of a chunk in shared memory: how they get there and become features, and logarithms of
// decays as numbers that can be added up. What both forms of chunked recurrent attention share.
#ifndef HEED_SRC_CUDA_CHUNK_FEATURES_H_
#define HEED_SRC_CUDA_CHUNK_FEATURES_H_

#include <cmath>
#include <cstdint>

#include "heed/recurrent.h"
#include "src/cuda/attention_params.h"
#include "src/cuda/chunk_params.h"
#include "src/cuda/device.h"
#include "src/cuda/plugs.h"
#include "src/cuda/shared_words.h"

namespace heed::cuda {

// A number of a matrix of 16-bit type T in shared memory, and one rounded to the type.
template <class Block, class T>
HEED_DEVICE float NumberIn(const typename Block::template Shared<T>& shared, int t, int at) {
  return Block::Unpack(T{}, shared.Load(t, at).bits);
}
template <class Block, class T>
HEED_DEVICE T RoundedTo(float x) {
  return T{static_cast<uint16_t>(Block::Pack(T{}, x, 0.0f))};
}

// Eight neighbours, two a word.
template <class Block, class T>
HEED_DEVICE void UnpackEight(const uint32_t (&pairs)[4], float (&x)[8]) {
  HEED_UNROLL for (int n = 0; n < 8; ++n) {
    x[n] = Block::Unpack(T{}, static_cast<uint16_t>(pairs[n / 2] >> (16 * (n % 2))));
  }
}
template <class Block, class T>
HEED_DEVICE void PackEight(const float (&x)[8], uint32_t (&pairs)[4]) {
  HEED_UNROLL for (int n = 0; n < 4; ++n) pairs[n] = Block::Pack(T{}, x[2 * n], x[2 * n + 1]);
}

// Factors below e^-104 are 0 in float32, so sums need not go on to -infinity, whose differences
// would be NaN. NaN stays.
HEED_DEVICE float BoundedLogDecay(float x) { return x < -128 ? -128.0f : x; }

// Which rows of a chunk there are: those of all tokens, or, where a token counts as two, odd ones,
// beside zeros or what lies there.
enum class ChunkRows { kAll, kOddAndZeros, kOdd };

// Starts to copy rows of the type of Products. `first` is where that of the first token begins;
// those of tokens from `count` on and what lies behind the width become 0. No barrier: the rows are
// there after CommitCopies(), WaitCopies() and a barrier.
template <class Products, class Block, class Shared>
HEED_DEVICE void CopyChunk(Block& block, Shared& to, const DeviceRows& rows, const char* first,
                           int count, ChunkRows which = ChunkRows::kAll) {
  using T = typename Products::Element;
  constexpr int kPieces = Products::kDim / 8, kStep = kBlockThreads / kPieces;
  block.Each([&](int t) {
    const int tokens = which == ChunkRows::kAll ? 1 : 2;  // a token of the sequence counts as
    const int d = t % kPieces * 8, r = t / kPieces;
    const bool is_second = which == ChunkRows::kAll || r % 2 == 1;
    if (which == ChunkRows::kOdd && !is_second) return;
    const char* from = first + r / tokens * rows.strides[2] + d * static_cast<int>(sizeof(T));
    const int64_t step = kStep / tokens * rows.strides[2];
    const int end = d < rows.width && is_second ? count * tokens : 0;  // of rows that are copied
    const int at = r * Products::kStride + d;
    const uint32_t zeros[4] = {};
    if (rows.vectors) {
      HEED_UNROLL for (int n = 0; n < kChunkTokens / kStep; ++n) {
        const int place = at + n * kStep * Products::kStride;
        if (r + n * kStep < end) {
          to.CopyAsync(t, place, from);
        } else {
          StoreEight<T>(to, t, place, zeros);
        }
        from += step;
      }
      return;
    }
    HEED_NO_UNROLL for (int n = 0; n < kChunkTokens / kStep; ++n) {
      const T* const row = reinterpret_cast<const T*>(from);
      uint32_t bits[8];
      HEED_UNROLL for (int x = 0; x < 8; ++x) {
        bits[x] = r + n * kStep < end && d + x < rows.width ? row[x].bits : 0;
      }
      const uint32_t pairs[4] = {bits[0] | bits[1] << 16, bits[2] | bits[3] << 16,
                                 bits[4] | bits[5] << 16, bits[6] | bits[7] << 16};
      StoreEight<T>(to, t, at + n * kStep * Products::kStride, pairs);
      from += step;
    }
  });
}

// The first `features` numbers of kChunkTokens rows of Products become map(x), rounded to the type.
// No barrier.
template <class Products, class Block, class Shared, class Map>
HEED_DEVICE void MapNumbers(Block& block, Shared& rows, int features, const Map& map) {
  using T = typename Products::Element;
  constexpr int kPieces = Products::kDim / 8, kStep = kBlockThreads / kPieces;
  block.Each([&](int t) {
    const int d = t % kPieces * 8;
    const int left = features - d;  // of the piece and behind it
    if (left <= 0) return;
    HEED_NO_UNROLL for (int n = 0; n < kChunkTokens / kStep; ++n) {
      const int at = (t / kPieces + n * kStep) * Products::kStride + d;
      uint32_t pairs[4];
      float x[8];
      rows.LoadEight(t, at, pairs);
      UnpackEight<Block, T>(pairs, x);
      HEED_UNROLL for (int m = 0; m < 8; ++m) x[m] = map(x[m]);
      if (left < 8) {
        HEED_UNROLL for (int m = 1; m < 8; ++m) x[m] = m < left ? x[m] : 0.0f;
      }
      PackEight<Block, T>(x, pairs);
      StoreEight<T>(rows, t, at, pairs);
    }
  });
}

// The maps of single numbers, those of both forms; all others leave rows as they are. No barrier.
template <class Products, class Block, class Shared>
HEED_DEVICE void MapPointwise(Block& block, Shared& rows, int features, FeatureMap map) {
  if (map == FeatureMap::kRelu) {
    MapNumbers<Products>(block, rows, features, [](float x) { return x <= 0 ? 0.0f : x; });
  } else if (map == FeatureMap::kEluPlusOne) {
    MapNumbers<Products>(block, rows, features, [](float x) {
      const float small = Exp(x);
      return x <= 0 ? small : x + 1;
    });
  }
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_CHUNK_FEATURES_H_
