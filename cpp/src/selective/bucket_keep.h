// Keep plug: what tokens see of each other in a round of hashing.
#ifndef HEED_SRC_SELECTIVE_BUCKET_KEEP_H_
#define HEED_SRC_SELECTIVE_BUCKET_KEEP_H_

#include <cstddef>
#include <cstdint>
#include <limits>
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
  BucketKeep(const Hashing& hashing, size_t round) : hashing_(hashing), round_(round) {
    const ScratchVector<int32_t>& tokens = hashing.rounds[round].tokens;
    for (size_t n = 0; n < round; ++n) {
      earlier_.emplace_back(tokens.size());
      const size_t len = static_cast<size_t>(hashing.rows[2]);
      for (size_t at = 0; at < tokens.size(); ++at) {
        if (tokens[at] < 0) continue;
        const size_t token = at / len * len + static_cast<size_t>(tokens[at]);
        earlier_.back()[at] = hashing.rounds[n].places[token].place;
      }
    }
  }

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
      if (columns.begin < columns.end) NarrowRow(tile, row, columns, bits[r]);
    }
  }

 private:
  int64_t TokenOf(int64_t batch, const Row& row) const {
    return hashing_.Token(round_, batch, row.head, row.query);
  }
  // Loops that compilers turn into vectors: one byte a column.
  void NarrowRow(const KeepTile& tile, const Row& row, const ColumnRange& columns,
                 KeyBits& bits) const {
    const size_t start =
        hashing_.HeadStart(tile.batch, row.head) + static_cast<size_t>(tile.key_begin);
    const int32_t token = static_cast<int32_t>(TokenOf(tile.batch, row));
    const int32_t end = hashing_.causal ? token : std::numeric_limits<int32_t>::max();
    const int32_t* const tokens = hashing_.rounds[round_].tokens.data() + start;
    uint8_t counts[kTileKeys];
    for (size_t c = columns.begin; c < columns.end; ++c) {
      counts[c] = (tokens[c] != token) & (tokens[c] < end);
    }
    for (size_t n = 0; n < round_; ++n) {
      const HashPlace& met = hashing_.Place(n, tile.batch, row.head, token);
      const int32_t* const places = earlier_[n].data() + start;
      for (size_t c = columns.begin; c < columns.end; ++c) {
        counts[c] &= (places[c] < met.begin) | (places[c] >= met.end);
      }
    }
    KeyBits seen;
    for (size_t c = columns.begin; c < columns.end; ++c) {
      seen.words[c / 64] |= uint64_t{counts[c]} << (c % 64);
    }
    bits &= seen;
  }

  // Places of the earlier rounds in the order of this one.
  std::vector<ScratchVector<int32_t>> earlier_;
  const Hashing& hashing_;
  size_t round_;
};

}  // namespace heed

#endif  // HEED_SRC_SELECTIVE_BUCKET_KEEP_H_
