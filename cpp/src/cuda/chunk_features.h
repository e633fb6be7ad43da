// Rows of a chunk in shared memory become features, and logarithms of decays numbers that can be
// added up: what both forms of chunked recurrent attention share.
#ifndef HEED_SRC_CUDA_CHUNK_FEATURES_H_
#define HEED_SRC_CUDA_CHUNK_FEATURES_H_

#include <cmath>
#include <cstdint>

#include "heed/recurrent.h"
#include "src/cuda/attention_params.h"
#include "src/cuda/chunk_params.h"
#include "src/cuda/device.h"
#include "src/cuda/plugs.h"

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

// Factors below e^-104 are 0 in float32, so sums need not go on to -infinity, whose differences
// would be NaN. NaN stays.
HEED_DEVICE float BoundedLogDecay(float x) { return x < -128 ? -128.0f : x; }

// The first `features` numbers of kChunkTokens rows of Products become map(x), rounded to the type.
// A barrier.
template <class Products, class Block, class Shared, class Map>
HEED_DEVICE void MapNumbers(Block& block, Shared& rows, int features, const Map& map) {
  using T = typename Products::Element;
  block.Each([&](int t) {
    HEED_NO_UNROLL for (int n = t; n < kChunkTokens * Products::kDim; n += kBlockThreads) {
      const int at = n / Products::kDim * Products::kStride + n % Products::kDim;
      if (n % Products::kDim >= features) continue;
      rows.Store(t, at, RoundedTo<Block, T>(map(NumberIn<Block, T>(rows, t, at))));
    }
  });
  block.Sync();
}

// The maps of single numbers, those of both forms; all others leave rows as they are.
template <class Products, class Block, class Shared>
HEED_DEVICE void MapPointwise(Block& block, Shared& rows, int features, FeatureMap map) {
  if (map == FeatureMap::kRelu) {
    MapNumbers<Products>(block, rows, features, [](float x) { return x <= 0 ? 0.0f : x; });
  } else if (map == FeatureMap::kEluPlusOne) {
    MapNumbers<Products>(block, rows, features, [](float x) { return x <= 0 ? Exp(x) : x + 1; });
  }
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_CHUNK_FEATURES_H_
