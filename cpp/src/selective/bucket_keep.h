// Keep plug: what tokens see of each other in a round of hashing.
#ifndef HEED_SRC_SELECTIVE_BUCKET_KEEP_H_
#define HEED_SRC_SELECTIVE_BUCKET_KEEP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "heed/tensor.h"
#include "src/exact/keep/keep.h"
#include "src/selective/hash.h"

namespace heed {

// The tokens of all heads in one round. Memory: 16 bytes a token and head.
struct HashRound {
  ScratchVector<HashPlace> places;  // [batch, num_heads, len], by token
  ScratchVector<int32_t> tokens;    // [batch, num_heads, len], by place; -1 behind the last
};

struct Hashing {
  Extents rows{};  // [batch, num_heads, len, 1]
  bool causal = false;
  std::vector<HashRound> rounds;

  size_t HeadStart(int64_t b, int64_t h) const {
    return static_cast<size_t>((b * rows[1] + h) * rows[2]);
  }
  int64_t Token(size_t round, int64_t b, int64_t h, int64_t place) const {
    return rounds[round].tokens[HeadStart(b, h) + static_cast<size_t>(place)];
  }
  const HashPlace& Place(size_t round, int64_t b, int64_t h, int64_t token) const {
    return rounds[round].places[HeadStart(b, h) + static_cast<size_t>(token)];
  }
};

// Queries and keys are places of a round. A pair counts in the first round that brings it together;
// a token does not see itself.
class BucketKeep final : public CellKeep {
 public:
  BucketKeep(const Hashing& hashing, size_t round) : hashing_(hashing), round_(round) {}

  KeyRange Hull(int64_t batch, const Row& row) const override {
    const int64_t token = TokenOf(batch, row);
    if (token < 0) return {0, 0};
    const HashPlace& place = hashing_.Place(round_, batch, row.head, token);
    return {place.begin, place.end};
  }

  void Narrow(const KeepTile& tile, KeyBits* bits) const override {
    for (size_t r = 0; r < tile.num_rows; ++r) {
      const Row& row = tile.rows[r];
      const ColumnRange columns = VisibleColumns(row, tile.key_begin, tile.num_keys);
      const int64_t i = TokenOf(tile.batch, row);
      KeyBits seen;
      for (size_t c = columns.begin; c < columns.end; ++c) {
        const int64_t place = tile.key_begin + static_cast<int64_t>(c);
        const int64_t j = hashing_.Token(round_, tile.batch, row.head, place);
        if (Counts(tile.batch, row.head, i, j)) seen.Set(c);
      }
      bits[r] &= seen;
    }
  }

 private:
  int64_t TokenOf(int64_t batch, const Row& row) const {
    return hashing_.Token(round_, batch, row.head, row.query);
  }
  // Of two tokens that meet in this round.
  bool Counts(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (i == j || (hashing_.causal && j > i)) return false;
    for (size_t n = 0; n < round_; ++n) {
      if (hashing_.Place(n, b, h, i).Sees(hashing_.Place(n, b, h, j))) return false;
    }
    return true;
  }

  const Hashing& hashing_;
  size_t round_;
};

}  // namespace heed

#endif  // HEED_SRC_SELECTIVE_BUCKET_KEEP_H_
