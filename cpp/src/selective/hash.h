// Locality-sensitive hashing: which tokens of a head fall into the same buckets.
#ifndef HEED_SRC_SELECTIVE_HASH_H_
#define HEED_SRC_SELECTIVE_HASH_H_

#include <cstdint>

#include "heed/tensor.h"
#include "src/parallel/dry_run.h"
#include "src/selective/dots.h"

namespace heed {

struct HashRule {
  int64_t hash_buckets = 1;  // 1, or even
  int64_t chunk = 64;        // places of a chunk
};

// Where a token stands among those of its head, sorted by bucket, and the places that it sees: its
// own chunk and the one before, as far as its bucket reaches.
struct HashPlace {
  int32_t place = 0;
  int32_t begin = 0, end = 0;
};

// Memory of one thread.
struct HashScratch {
  HashScratch(const HashRule& rule, int64_t len);
  ScratchVector<double> products;
  ScratchVector<int32_t> buckets, starts;
};

// Hashes the first `len` tokens of a head, [1, 1, len, head_dim]. Buckets are argmax([x; -x]), x
// the products of a token and the rotations; of equal ones the first, and bucket 0 where the first
// product is NaN. Tokens are sorted by bucket, then by position. Writes places by token and tokens
// by place.
void HashHead(const TensorView<const float>& q, int64_t len, const DotPanels& rotations,
              const HashRule& rule, HashScratch& scratch, HashPlace* places, int32_t* tokens);

}  // namespace heed

#endif  // HEED_SRC_SELECTIVE_HASH_H_
