// Score socket: fills a tile with scores from packed queries and packed keys.
#if defined(HEED_EXACT_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SCORE_INL_H_
#undef HEED_EXACT_SCORE_INL_H_
#else
#define HEED_EXACT_SCORE_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/tile.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class ScorePlug {
 public:
  virtual ~ScorePlug() = default;

  // What a packed query row is multiplied by; `nullptr` per-dimension factors mean none.
  virtual float QueryFactor() const = 0;

  // Per-dimension factors for queries and keys alike, or nullptr.
  virtual const float* DimensionFactors() const = 0;

  // Writes columns [first, last) of the tile. `queries` holds row groups of kTileRows (the last one
  // may be shorter), each [head_dim][rows]; `panels` the tile's packed keys,
  // [head_dim][PanelCols()] a panel.
  virtual void Fill(const float* queries, const float* panels, ScoreTile& tile) const = 0;
};

// Runs the register tile over all panels and row groups of a tile. Panels are the outer loop: one
// stays in L1 while the few packed query rows pass.
template <class Op, class Store>
HWY_INLINE void FillScores(const float* HWY_RESTRICT queries, const float* HWY_RESTRICT panels,
                           const ScoreTile& tile, Store store) {
  const size_t depth = static_cast<size_t>(tile.problem->head_dim);
  const size_t cols = PanelCols();
  const size_t whole = tile.num_rows / kTileRows * kTileRows;
  for (size_t c = tile.first; c < tile.last; c += cols) {
    const float* panel = panels + c * depth;
    for (size_t r = 0; r < whole; r += kTileRows) {
      RegisterTile<Op, ALayout<kTileRows, 1>, kTileRows>(queries + r * depth, panel, depth,
                                                         tile.row_scores(r) + c, kTileKeys, store);
    }
    if (whole == tile.num_rows) continue;
    WithRows(tile.num_rows - whole, [&]<size_t kRows>() HWY_ATTR {
      RegisterTile<Op, ALayout<kRows, 1>, kRows>(queries + whole * depth, panel, depth,
                                                 tile.row_scores(whole) + c, kTileKeys, store);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_INL_H_
