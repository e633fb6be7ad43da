// Keep socket: which keys exist for which query. Range plugs are in range.h; a plug that hides
// single cells derives from CellKeep.
#if defined(HEED_EXACT_KEEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_KEEP_INL_H_
#undef HEED_EXACT_KEEP_INL_H_
#else
#define HEED_EXACT_KEEP_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "hwy/highway.h"
#include "src/exact/tile.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A keep rule that works cell by cell. Both functions look at the columns [first, last) of the tile
// below num_keys, and only at keys inside the rows' ranges.
class CellKeep {
 public:
  virtual ~CellKeep() = default;
  // Is every, no or some cell of the tile kept? An empty tile costs nothing more.
  virtual TileClass Classify(const ScoreTile& tile) const = 0;
  // Sets the scores of cells that are not kept to -inf.
  virtual void Apply(ScoreTile& tile) const = 0;
};

// The part of a row's key range that lies in the tile, as columns.
inline ColumnRange VisibleColumns(const ScoreTile& tile, size_t r) {
  const KeyRange keys = tile.rows[r].keys;
  const int64_t count = static_cast<int64_t>(tile.num_keys);
  const int64_t begin = std::clamp<int64_t>(keys.begin - tile.key_begin, 0, count);
  const int64_t end = std::clamp<int64_t>(keys.end - tile.key_begin, begin, count);
  return {static_cast<size_t>(begin), static_cast<size_t>(end)};
}

// Sets columns [from, to) of a row to -inf.
inline void HideColumns(float* row, size_t from, size_t to) {
  std::fill(row + from, row + std::max(from, to), -std::numeric_limits<float>::infinity());
}

// Applies the range plugs and hides the padding: everything outside a row's visible columns.
inline void ApplyRanges(ScoreTile& tile) {
  for (size_t r = 0; r < tile.num_rows; ++r) {
    const ColumnRange visible = VisibleColumns(tile, r);
    float* row = tile.row_scores(r);
    const size_t begin = std::clamp(visible.begin, tile.first, tile.last);
    const size_t end = std::clamp(visible.end, begin, tile.last);
    HideColumns(row, tile.first, begin);
    HideColumns(row, end, tile.last);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_KEEP_INL_H_
