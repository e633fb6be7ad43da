// Keep socket, on scores: hides what the keep plugs (keep.h) do not let a row see.
#if defined(HEED_EXACT_KEEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_KEEP_INL_H_
#undef HEED_EXACT_KEEP_INL_H_
#else
#define HEED_EXACT_KEEP_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <limits>

#include "hwy/highway.h"
#include "src/exact/keep/keep.h"
#include "src/exact/row_groups-inl.h"
#include "src/exact/tile.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Panels of a tile fit the bits of a word.
static_assert(kTileKeys / PanelCols() <= 64 && 64 % PanelCols() == 0);

// Sets columns [from, to) of a row to -inf.
inline void HideColumns(float* row, size_t from, size_t to) {
  std::fill(row + from, row + std::max(from, to), -std::numeric_limits<float>::infinity());
}

// Narrows the tile to the panels that some row sees, its row groups to the columns, and classifies
// it by the range plugs. Only the first `distinct` rows are asked: all, or 1 when all see the same.
inline TileClass NarrowToRanges(ScoreTile& tile, size_t distinct) {
  ColumnRange all = {tile.last, 0};
  bool full = true;
  for (size_t group = 0; group < distinct; group += kTileRows) {
    ColumnRange seen = {tile.last, 0};
    for (size_t r = group; r < std::min(group + kTileRows, distinct); ++r) {
      const ColumnRange columns = VisibleColumns(tile, r);
      full = full && columns.begin == 0 && columns.end == tile.num_keys;
      if (columns.begin == columns.end) continue;
      seen.begin = std::min(seen.begin, columns.begin);
      seen.end = std::max(seen.end, columns.end);
    }
    tile.groups[group / kTileRows] = seen;
    all.begin = std::min(all.begin, seen.begin);
    all.end = std::max(all.end, seen.end);
  }
  if (all.begin >= all.end) return TileClass::kEmpty;
  if (distinct == 1) std::fill_n(tile.groups, kMaxRowGroups, all);
  const ColumnRange panels = PanelsOf(all);
  tile.first = panels.begin;
  tile.last = panels.end;
  // Padding columns must be hidden like masked ones.
  return full && tile.last == tile.num_keys ? TileClass::kFull : TileClass::kPartial;
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

// Hides every column of [first, last) whose bit is clear; bits[r] belongs to row r.
inline void ApplyBits(const KeyBits* bits, ScoreTile& tile) {
  const DF d;
  const VF hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (size_t r = 0; r < tile.num_rows; ++r) {
    if (bits[r].Covers(tile.first, tile.last)) continue;
    float* HWY_RESTRICT row = tile.row_scores(r);
    for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
      const uint64_t word = bits[r].words[c / 64] >> (c % 64);
      uint8_t bytes[8];
      hwy::CopyBytes<8>(&word, bytes);
      const auto kept = hn::LoadMaskBits(d, bytes);
      hn::Store(hn::IfThenElse(kept, hn::Load(d, row + c), hidden), d, row + c);
    }
  }
}

// Gaps of at most so many panels join their neighbours: a run of its own would cost more.
inline constexpr int kSmallGap = 1;

// Takes the first run of panels, as columns, out of `panels`. False when none is left.
inline bool TakeRun(uint64_t& panels, ColumnRange& run) {
  if (panels == 0) return false;
  int end = std::countr_zero(panels);
  run.begin = static_cast<size_t>(end) * PanelCols();
  while (true) {
    const uint64_t rest = panels >> end;
    end += std::countr_one(rest);
    const uint64_t after = end < 64 ? panels >> end : 0;
    if (after == 0 || std::countr_zero(after) > kSmallGap) break;
    end += std::countr_zero(after);
  }
  run.end = static_cast<size_t>(end) * PanelCols();
  panels = end < 64 ? panels >> end << end : 0;
  return true;
}

// What the keep plugs leave of a tile.
struct VisiblePanels {
  uint64_t any = 0;               // panels that some row sees
  KeyBits groups[kMaxRowGroups];  // columns that some row of each row group sees
  KeyBits all;                    // columns that every row sees
};

inline VisiblePanels FindPanels(const KeyBits* bits, size_t num_rows) {
  VisiblePanels visible;
  visible.all.SetRange(0, kTileKeys);
  for (size_t r = 0; r < num_rows; ++r) {
    visible.groups[r / kTileRows] |= bits[r];
    visible.all &= bits[r];
  }
  for (const KeyBits& group : visible.groups) visible.any |= group.Panels(PanelCols());
  return visible;
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_KEEP_INL_H_
