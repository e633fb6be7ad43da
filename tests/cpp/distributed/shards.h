// Whole tensors, and the parts of them that ranks have.
#ifndef HEED_TESTS_DISTRIBUTED_SHARDS_H_
#define HEED_TESTS_DISTRIBUTED_SHARDS_H_

#include <cstdint>
#include <vector>

#include "buffer.h"
#include "heed/distributed.h"
#include "random.h"

namespace heed::testing {

inline int64_t TokensOfRank(int64_t len, int rank, int size, distributed::TokenOrder order) {
  int64_t count = 0;
  for (const auto& span : distributed::TokensOf(len, rank, size, order)) count += span.len;
  return count;
}

// Calls visit(row of the part, token of the whole) for every token of a rank.
template <typename Visit>
void ForEachToken(int64_t len, int rank, int size, distributed::TokenOrder order,
                  const Visit& visit) {
  int64_t row = 0;
  for (const auto& span : distributed::TokensOf(len, rank, size, order)) {
    for (int64_t n = 0; n < span.len; ++n) visit(row++, span.begin + n);
  }
}

// The rows of a whole that a rank has, in some layout, `fill` in its gaps.
template <typename T>
Buffer<T> PartOf(const Buffer<T>& whole, int rank, int size, distributed::TokenOrder order,
                 Layout layout = Layout::kPadded) {
  Extents shape = whole.shape();
  const int64_t len = shape[2];
  shape[2] = TokensOfRank(len, rank, size, order);
  Buffer<T> part(shape, layout, T{});
  ForEachToken(len, rank, size, order, [&](int64_t row, int64_t token) {
    for (int64_t b = 0; b < shape[0]; ++b) {
      for (int64_t h = 0; h < shape[1]; ++h) {
        for (int64_t d = 0; d < shape[3]; ++d) part(b, h, row, d) = whole(b, h, token, d);
      }
    }
  });
  return part;
}

// Puts a rank's rows where they belong. Ranks may do so at the same time.
template <typename T>
void PutPart(const Buffer<T>& part, Buffer<T>& whole, int rank, int size,
             distributed::TokenOrder order) {
  const Extents shape = part.shape();
  ForEachToken(whole.shape()[2], rank, size, order, [&](int64_t row, int64_t token) {
    for (int64_t b = 0; b < shape[0]; ++b) {
      for (int64_t h = 0; h < shape[1]; ++h) {
        for (int64_t d = 0; d < shape[3]; ++d) whole(b, h, token, d) = part(b, h, row, d);
      }
    }
  });
}

inline Buffer<float> NormalBuffer(const Extents& shape, uint64_t seed, float size = 1) {
  Buffer<float> buffer(shape, Layout::kDense, 0);
  Random random(seed);
  buffer.ForEach([&](int64_t, int64_t, int64_t, int64_t, float& x) { x = size * random.Normal(); });
  return buffer;
}

}  // namespace heed::testing

#endif  // HEED_TESTS_DISTRIBUTED_SHARDS_H_
