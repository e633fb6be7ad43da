// Row groups: the rows of a score tile, one register tile high.
#if defined(HEED_EXACT_ROW_GROUPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_ROW_GROUPS_INL_H_
#undef HEED_EXACT_ROW_GROUPS_INL_H_
#else
#define HEED_EXACT_ROW_GROUPS_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/tile.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Rows whose scores are in flight at once: with kTileKeys columns they stay in L1, and the packed
// keys of a tile are read from L2 once per so many rows. Whole vectors of rows.
inline constexpr size_t kScoreRows = kTileRows == 6 ? 24 : 16;
static_assert(kScoreRows <= kMaxRowGroups * kTileRows && kScoreRows <= kMaxTileRows);

// The whole panels that hold the columns.
HWY_INLINE ColumnRange PanelsOf(const ColumnRange& columns) {
  return {columns.begin / PanelCols() * PanelCols(),
          (columns.end + PanelCols() - 1) / PanelCols() * PanelCols()};
}

// Calls body.template operator()<rows>(first row, columns) for each group of the tile; the last one
// may have fewer than kTileRows rows.
template <class Body>
HWY_INLINE void ForEachRowGroup(const ScoreTile& tile, Body&& body) {
  const size_t whole = tile.num_rows / kTileRows * kTileRows;
  for (size_t r = 0; r < whole; r += kTileRows) {
    body.template operator()<kTileRows>(r, tile.groups[r / kTileRows]);
  }
  if (whole == tile.num_rows) return;
  WithRows<kTileRows - 1>(tile.num_rows - whole, [&]<size_t kRows>() HWY_ATTR {
    body.template operator()<kRows>(whole, tile.groups[whole / kTileRows]);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_ROW_GROUPS_INL_H_
