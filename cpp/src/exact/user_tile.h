// A score tile as users see it.
#ifndef HEED_SRC_EXACT_USER_TILE_H_
#define HEED_SRC_EXACT_USER_TILE_H_

#include <algorithm>

#include "heed/expression.h"
#include "src/exact/tile.h"

namespace heed {

// Owns the rows of the PairTiles that it makes, which live no longer than it does.
class UserTile {
 public:
  explicit UserTile(const ScoreTile& tile) {
    for (size_t r = 0; r < tile.num_rows; ++r) {
      rows_[r] = {tile.rows[r].head, tile.rows[r].query, tile.rows[r].position};
    }
  }

  // Columns [first, last) of the tile, without its padding.
  PairTile All(const ScoreTile& tile) const {
    const size_t end = std::min(tile.last, tile.num_keys);
    return {tile.batch,
            rows_,
            tile.num_rows,
            tile.key_begin + static_cast<int64_t>(tile.first),
            end > tile.first ? end - tile.first : 0,
            tile.scores + tile.first,
            kTileKeys};
  }

  PairTile OneRow(size_t r, const ScoreTile& tile) const {
    PairTile one = All(tile);
    one.rows += r;
    one.values += r * kTileKeys;
    one.num_rows = 1;
    return one;
  }

 private:
  PairTile::Row rows_[kMaxTileRows];
};

}  // namespace heed

#endif  // HEED_SRC_EXACT_USER_TILE_H_
