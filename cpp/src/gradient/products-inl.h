// The products of a tile of gradients with what lies on its other side. Each tile is summed by
// itself before it joins the total, as in forward.
#if defined(HEED_GRADIENT_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_GRADIENT_PRODUCTS_INL_H_
#undef HEED_GRADIENT_PRODUCTS_INL_H_
#else
#define HEED_GRADIENT_PRODUCTS_INL_H_
#endif

#include <algorithm>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/exact/row_groups-inl.h"
#include "src/exact/score_gradient-inl.h"
#include "src/exact/tile.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// to[row of the tile] += sum over its keys of cell * keys[key].
inline void AddKeys(const ScoreTile& cells, const PanelRows& keys, float* to) {
  for (size_t c = 0; c < keys.cols; c += PanelCols()) {
    const float* panel = keys.data + c * keys.rows;
    ForEachRowGroup(cells, [&]<size_t kRows>(size_t r, const ColumnRange& columns) HWY_ATTR {
      const size_t end = std::min(columns.end, cells.num_keys);
      if (columns.begin >= end) return;
      RegisterTile<ALayout<1, kTileKeys>, kRows>(
          MultiplyAccumulate(), cells.row_scores(r) + columns.begin,
          panel + columns.begin * PanelCols(), end - columns.begin, to + r * keys.cols + c,
          keys.cols, AddToStored());
    });
  }
}

// Rows whose groups see some of the columns [begin, end).
inline ColumnRange RowsThatSee(const ScoreTile& tile, size_t begin, size_t end) {
  ColumnRange rows = {tile.num_rows, 0};
  for (size_t r = 0; r < tile.num_rows; r += kTileRows) {
    const ColumnRange& columns = tile.groups[r / kTileRows];
    if (columns.begin >= end || columns.end <= begin) continue;
    rows.begin = std::min(rows.begin, r);
    rows.end = std::min(r + kTileRows, tile.num_rows);
  }
  return rows;
}

// Asks for the sums of the keys after the next ones. They are written back while they are waited
// for: at 8192 tokens, where they have left the caches, backward takes 8 % less time (Zen 4, AVX2,
// head_dim 64).
inline void PrefetchSums(const float* sums, size_t cols) {
  constexpr size_t kLine = 64;
  const size_t bytes = kTileRows * cols * sizeof(float);
  const uintptr_t ahead = reinterpret_cast<uintptr_t>(sums) + 2 * bytes;
  for (size_t byte = 0; byte < bytes; byte += kLine) {
    hwy::Prefetch(reinterpret_cast<const void*>(ahead + byte));
  }
}

// to[key of the tile] += sum over its rows of cell * rows[row]. Keys take the place of rows in the
// register tile: their cells lie next to each other.
inline void AddRows(const ScoreTile& cells, const PanelRows& rows, float* to) {
  const size_t last = std::min(cells.last, cells.num_keys);
  for (size_t key = cells.first; key < last; key += kTileRows) {
    const size_t count = std::min(kTileRows, last - key);
    const ColumnRange seeing = RowsThatSee(cells, key, key + count);
    if (seeing.begin >= seeing.end) continue;
    const float* a = cells.row_scores(seeing.begin) + key;
    PrefetchSums(to + key * rows.cols, rows.cols);
    WithRows(count, [&]<size_t kRows>() HWY_ATTR {
      for (size_t c = 0; c < rows.cols; c += PanelCols()) {
        RegisterTile<ALayout<kTileKeys, 1>, kRows>(
            MultiplyAccumulate(), a, rows.data + c * rows.rows + seeing.begin * PanelCols(),
            seeing.end - seeing.begin, to + key * rows.cols + c, rows.cols, AddToStored());
      }
    });
  }
}

// to[0, cols) += factor * row `at` of the panels.
inline void AddOneRow(float factor, const PanelRows& panels, size_t at, float* HWY_RESTRICT to) {
  const DF d;
  const VF by = hn::Set(d, factor);
  for (size_t c = 0; c < panels.cols; c += hn::Lanes(d)) {
    const float* from = panels.data + c / PanelCols() * PanelCols() * panels.rows +
                        at * PanelCols() + c % PanelCols();
    hn::Store(Fma(by, hn::LoadU(d, from), hn::Load(d, to + c)), d, to + c);
  }
}

// AddKeys and AddRows where vectors are not finite: 0 x NaN must not happen, so cells that are not
// `visible` (laid out as the scores) are left out.
inline void AddVisibleKeys(const ScoreTile& cells, const uint8_t* visible, const PanelRows& keys,
                           float* to) {
  const size_t last = std::min(cells.last, cells.num_keys);
  for (size_t r = 0; r < cells.num_rows; ++r) {
    for (size_t c = cells.first; c < last; ++c) {
      if (visible[r * kTileKeys + c] == 0) continue;
      AddOneRow(cells.row_scores(r)[c], keys, c, to + r * keys.cols);
    }
  }
}
inline void AddVisibleRows(const ScoreTile& cells, const uint8_t* visible, const PanelRows& rows,
                           float* to) {
  const size_t last = std::min(cells.last, cells.num_keys);
  for (size_t r = 0; r < cells.num_rows; ++r) {
    for (size_t c = cells.first; c < last; ++c) {
      if (visible[r * kTileKeys + c] == 0) continue;
      AddOneRow(cells.row_scores(r)[c], rows, r, to + c * rows.cols);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_GRADIENT_PRODUCTS_INL_H_
