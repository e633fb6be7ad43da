// Keep socket: which keys exist for which query. Range plugs are in range.h; a plug that hides
// single cells derives from CellKeep. No SIMD here: the loop and Explain() use the same plugs.
#ifndef HEED_SRC_EXACT_KEEP_KEEP_H_
#define HEED_SRC_EXACT_KEEP_KEEP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/exact/keep/key_bits.h"
#include "src/exact/tile.h"

namespace heed {

// Rows of a batch entry, in ascending order of their queries, and the keys
// [key_begin, key_begin + num_keys) of a tile.
struct KeepTile {
  int64_t batch;
  const Row* rows;
  size_t num_rows;
  int64_t key_begin;
  size_t num_keys;

  KeyRange keys() const { return {key_begin, key_begin + static_cast<int64_t>(num_keys)}; }
};

// A keep rule that works cell by cell.
class CellKeep {
 public:
  virtual ~CellKeep() = default;
  // An interval outside of which the row sees nothing. Asked once per row.
  virtual KeyRange Hull(int64_t /*batch*/, const Row& row) const { return row.keys; }
  // False only if no row sees a key of the tile. Cheap: asked for every tile, also for the rows of
  // a whole block, so that empty tiles cost next to nothing.
  virtual bool MayMeet(const KeepTile& /*tile*/) const { return true; }
  // Queries come in runs of so many, from query 0 on, that see the same keys; 1 = nothing is known.
  // Blocks of rows begin with a run where they can.
  virtual int64_t QueryRun() const { return 1; }
  // Whether two rows with the same key range certainly see the same keys.
  virtual bool SameKeys(int64_t /*batch*/, const Row& /*a*/, const Row& /*b*/) const {
    return false;
  }
  // Clears the bits of keys that a row does not see; bits[r] belongs to rows[r]. What lies outside
  // of a row's key range is clear already.
  virtual void Narrow(const KeepTile& tile, KeyBits* bits) const = 0;
};

using KeepPlugs = std::vector<std::shared_ptr<const CellKeep>>;

// Leaves of a row's key range what every plug may let it see.
inline void NarrowToHulls(const KeepPlugs& plugs, int64_t batch, Row& row) {
  for (const auto& plug : plugs) {
    if (row.keys.begin >= row.keys.end) break;
    const KeyRange hull = plug->Hull(batch, row);
    row.keys.begin = std::max(row.keys.begin, hull.begin);
    row.keys.end = std::min(row.keys.end, hull.end);
  }
  if (row.keys.begin >= row.keys.end) row.keys = {0, 0};
}

// The part of a row's key range that lies in a tile, as columns.
inline ColumnRange VisibleColumns(const Row& row, int64_t key_begin, size_t num_keys) {
  const int64_t count = static_cast<int64_t>(num_keys);
  const int64_t begin = std::clamp<int64_t>(row.keys.begin - key_begin, 0, count);
  const int64_t end = std::clamp<int64_t>(row.keys.end - key_begin, begin, count);
  return {static_cast<size_t>(begin), static_cast<size_t>(end)};
}

inline ColumnRange VisibleColumns(const ScoreTile& tile, size_t r) {
  return VisibleColumns(tile.rows[r], tile.key_begin, tile.num_keys);
}

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_KEEP_H_
