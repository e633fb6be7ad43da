// Hashing of a Reformer: buckets, places, and what tokens see of each other. Plain kernels.
#ifndef HEED_SRC_CUDA_HASH_KERNELS_H_
#define HEED_SRC_CUDA_HASH_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "src/cuda/hash_params.h"
#include "src/cuda/head_place.h"
#include "src/cuda/kept_row_writer.h"

namespace heed::cuda {

// A product with a column of the rotations, summed as on the CPU (src/selective/dots.h).
HEED_DEVICE double Rotated(const HashParams& p, const float* x, int round, int column) {
  double sum = 0;
  HEED_NO_UNROLL for (int d = 0; d < p.width; ++d) {
    sum += static_cast<double>(x[d]) * static_cast<double>(p.rotations.At(0, round, d, column));
  }
  return sum;
}

// Of equal products the first, and bucket 0 where the first product is NaN.
HEED_DEVICE int BucketOf(const HashParams& p, const float* x, int round) {
  if (p.columns == 0) return 0;
  double largest = Rotated(p, x, round, 0), smallest = largest;
  if (largest != largest) return 0;
  int at_largest = 0, at_smallest = 0;
  HEED_NO_UNROLL for (int n = 1; n < p.columns; ++n) {
    const double product = Rotated(p, x, round, n);
    if (product > largest) largest = product, at_largest = n;
    if (product < smallest) smallest = product, at_smallest = n;
  }
  return -smallest > largest ? p.columns + at_smallest : at_largest;
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const HashParams& p, int64_t index) {
  const int64_t of_round = int64_t{p.batch} * p.heads * p.len;
  block.Each([&](int t) {
    const int64_t n = index * kBlockThreads + t;
    if (n >= p.rounds * of_round) return;
    const HeadPlace place(n % of_round, p.len, p.heads);
    const float* x = p.q.Row(place.b, place.h, place.within);
    p.buckets[n] = BucketOf(p, x, static_cast<int>(n / of_round));
  });
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const HashPlaceParams& p, int64_t index) {
  block.Each([&](int t) {
    const int64_t n = index * kBlockThreads + t;
    const int64_t of_round = int64_t{p.batch} * p.heads * p.len;
    if (n >= p.rounds * of_round) return;
    const int token = static_cast<int>(n % p.len);
    const int length = p.lengths[n % of_round / p.len / p.heads];
    if (token >= length) {
      p.places[n] = {-1, 0, 0};
      return;
    }
    const int32_t* buckets = p.buckets + (n - token);
    int before = 0, same = 0, same_before = 0;
    HEED_NO_UNROLL for (int j = 0; j < length; ++j) {
      before += buckets[j] < buckets[token] ? 1 : 0;
      same += buckets[j] == buckets[token] ? 1 : 0;
      same_before += buckets[j] == buckets[token] && j < token ? 1 : 0;
    }
    const int32_t at = before + same_before;
    const int64_t chunk = at / p.chunk, first = (chunk - 1) * p.chunk, end = (chunk + 1) * p.chunk;
    p.places[n] = {at, before > first ? before : static_cast<int32_t>(first),
                   before + same < end ? before + same : static_cast<int32_t>(end)};
  });
}

template <class Block>
HEED_DEVICE void RunStep(Block& block, const HashKeepParams& p, int64_t index) {
  const int i = static_cast<int>(index % p.len);
  const int64_t of_round = int64_t{p.batch} * p.heads * p.len;
  const HashPlaceOnDevice* places = p.places + (index - i);
  const auto meets = [&](int64_t j) {
    if (j == i || (p.causal && j > i)) return false;
    bool met = false;
    HEED_NO_UNROLL for (int n = 0; n < p.rounds; ++n) {
      const HashPlaceOnDevice& own = places[n * of_round + i];
      const int32_t other = places[n * of_round + j].place;
      met = met || (own.place >= 0 && other >= own.begin && other < own.end);
    }
    return met;
  };
  KeptRowWriter<Block> writer(block, p.kept);
  if (writer.Write(index, p.causal ? i : p.len, meets) > 0) return;
  writer.Write(index, int64_t{i} + 1, [&](int64_t j) { return j == i; });
}

}  // namespace heed::cuda

#endif  // HEED_SRC_CUDA_HASH_KERNELS_H_
