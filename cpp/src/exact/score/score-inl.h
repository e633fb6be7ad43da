// Score socket: fills a tile with scores from packed queries and packed keys.
#if defined(HEED_EXACT_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SCORE_INL_H_
#undef HEED_EXACT_SCORE_INL_H_
#else
#define HEED_EXACT_SCORE_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/row_groups-inl.h"
#include "src/exact/tile.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class ScorePlug {
 public:
  virtual ~ScorePlug() = default;

  // What packed queries are multiplied by.
  virtual float QueryFactor() const = 0;

  // Writes columns [first, last) of the tile. `queries` holds row groups of kTileRows (the last one
  // may be shorter), each [head_dim][rows]; `panels` the tile's packed keys,
  // [head_dim][PanelCols()] a panel.
  virtual void Fill(const float* queries, const float* panels, ScoreTile& tile) const = 0;
};

// Runs the register tile over all panels and row groups of a tile, as far as the rows of a group
// see the panel. Panels are the outer loop: one stays in L1 while the few packed query rows pass.
template <class Op, class Store>
HWY_INLINE void FillScores(Op op, const float* HWY_RESTRICT queries,
                           const float* HWY_RESTRICT panels, const ScoreTile& tile, Store store) {
  const size_t depth = static_cast<size_t>(tile.problem->head_dim);
  for (size_t c = tile.first; c < tile.last; c += PanelCols()) {
    const float* panel = panels + c * depth;
    ForEachRowGroup(tile, [&]<size_t kRows>(size_t r, const ColumnRange& columns) HWY_ATTR {
      if (c < columns.begin || c >= columns.end) return;
      RegisterTile<ALayout<kRows, 1>, kRows>(op, queries + r * depth, panel, depth,
                                             tile.row_scores(r) + c, kTileKeys, store);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_INL_H_
