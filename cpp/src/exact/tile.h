// What travels through the sockets: a few query rows, and a tile of their scores.
#ifndef HEED_SRC_EXACT_TILE_H_
#define HEED_SRC_EXACT_TILE_H_

#include <cstddef>
#include <cstdint>

#include "src/exact/problem.h"

namespace heed {

// Keys of a tile, and row stride of its scores in floats. A multiple of every panel width. With 128
// each row pays its sums and rescaling twice as often: 2.5 % slower (Zen 3, AVX2, 1024 keys).
inline constexpr size_t kTileKeys = 256;

// One query row: a query position of one head.
struct Row {
  int64_t head;
  int64_t query;
  int64_t position;  // query + query offset
  KeyRange keys;     // what the range plugs leave visible
};

// What a tile is to a keep plug.
enum class TileClass { kEmpty, kPartial, kFull };

// Columns [begin, end) of a tile.
struct ColumnRange {
  size_t begin;
  size_t end;
};

// Row groups of a score tile: as many register tiles as it is high.
inline constexpr size_t kMaxRowGroups = 4;

// Rows of a score tile at the very most, on any target.
inline constexpr size_t kMaxTileRows = 32;

// Scores of `num_rows` rows and the columns [first, last) of the tile of keys that starts at
// `key_begin`. Column c of row r is scores[r * kTileKeys + c], key key_begin + c. first and last
// are multiples of the panel width; columns at or beyond `num_keys` are padding.
struct ScoreTile {
  const AttentionProblem* problem;
  int64_t batch;
  const Row* rows;
  size_t num_rows;
  int64_t key_begin;
  size_t num_keys;
  size_t first;
  size_t last;
  ColumnRange groups[kMaxRowGroups];  // columns of [first, last) that some row of a group sees
  float* scores;

  float* row_scores(size_t r) const { return scores + r * kTileKeys; }
};

}  // namespace heed

#endif  // HEED_SRC_EXACT_TILE_H_
