// Neighbouring 16-bit elements of shared memory at a time, and of global memory 4 to 16 bytes.
#ifndef HEED_SRC_CUDA_SHARED_WORDS_H_
#define HEED_SRC_CUDA_SHARED_WORDS_H_

#include <cstdint>

#include "src/cuda/device.h"

namespace heed::cuda {

struct alignas(16) FourWords {
  uint32_t words[4];
};

struct alignas(8) TwoFloats {
  float numbers[2];
};

// On the device in one store. Elsewhere a block knows each of its elements (host_block.h).
template <class Words, class T, class Shared, int kWords>
HEED_DEVICE void StoreWords(Shared& to, int t, int i, const uint32_t (&words)[kWords]) {
  if constexpr (requires { to.at(i); }) {
    Words all;
    __builtin_memcpy(&all, words, sizeof(all));
    *reinterpret_cast<Words*>(const_cast<T*>(to.at(i))) = all;
  } else {
    HEED_UNROLL for (int n = 0; n < kWords; ++n) {
      to.Store(t, i + 2 * n, T{static_cast<uint16_t>(words[n])});
      to.Store(t, i + 2 * n + 1, T{static_cast<uint16_t>(words[n] >> 16)});
    }
  }
}

// Two elements at an even place, eight at one aligned to 16 bytes.
template <class Shared>
HEED_DEVICE uint32_t LoadPair(const Shared& from, int t, int i) {
  if constexpr (requires { from.at(i); }) {
    return *reinterpret_cast<const uint32_t*>(from.at(i));
  } else {
    const uint32_t low = from.Load(t, i).bits, high = from.Load(t, i + 1).bits;
    return low | high << 16;
  }
}
template <class T, class Shared>
HEED_DEVICE void StorePair(Shared& to, int t, int i, uint32_t pair) {
  const uint32_t words[1] = {pair};
  StoreWords<uint32_t, T>(to, t, i, words);
}
template <class T, class Shared>
HEED_DEVICE void StoreEight(Shared& to, int t, int i, const uint32_t (&pairs)[4]) {
  StoreWords<FourWords, T>(to, t, i, pairs);
}

// `to` is aligned to 16 bytes.
HEED_DEVICE void StoreGlobalEight(char* to, const uint32_t (&pairs)[4]) {
  *reinterpret_cast<FourWords*>(to) = {{pairs[0], pairs[1], pairs[2], pairs[3]}};
}

// `from` is aligned to 8 bytes.
HEED_DEVICE void LoadGlobalTwo(const float* from, float (&x)[2]) {
  const TwoFloats two = *reinterpret_cast<const TwoFloats*>(from);
  x[0] = two.numbers[0], x[1] = two.numbers[1];
}
// `to` is aligned to 4 bytes.
HEED_DEVICE void StoreGlobalPair(char* to, uint32_t pair) {
  *reinterpret_cast<uint32_t*>(to) = pair;
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_SHARED_WORDS_H_
