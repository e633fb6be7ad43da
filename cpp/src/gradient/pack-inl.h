// Packing for backward: what a tile of keys, and a block of rows, are multiplied by.
#if defined(HEED_GRADIENT_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_GRADIENT_PACK_INL_H_
#undef HEED_GRADIENT_PACK_INL_H_
#else
#define HEED_GRADIENT_PACK_INL_H_
#endif

#include <algorithm>

#include "src/gradient/plan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline bool AllFinite(const float* HWY_RESTRICT from, size_t count) {
  const DF d;
  VF poison = hn::Zero(d);
  size_t c = 0;
  for (; c + hn::Lanes(d) <= count; c += hn::Lanes(d)) {
    poison = hn::MulAdd(hn::LoadU(d, from + c), hn::Zero(d), poison);
  }
  if (c < count) poison = hn::MulAdd(hn::LoadN(d, from + c, count - c), hn::Zero(d), poison);
  return hn::ReduceSum(d, poison) == 0.0f;
}

// Turns `count` packed vectors that lie side by side, [depth][stride], into rows of panels,
// [panel of dims][row][PanelCols()], panels `panel_rows` rows apart.
inline void UnpackToPanels(const float* packed, size_t stride, size_t count, size_t depth,
                           size_t panel_rows, float* to) {
  for (size_t first = 0; first < depth; first += PanelCols()) {
    const size_t dims = std::min(PanelCols(), depth - first);
    const float* rows[PanelCols()];
    for (size_t t = 0; t < dims; ++t) rows[t] = packed + (first + t) * stride;
    float* panel = to + first * panel_rows;
    if (dims < PanelCols()) std::fill_n(panel, count * PanelCols(), 0.0f);
    TransposeRows(rows, dims, count, panel, PanelCols());
  }
}

// Keys and values of tile t. Those that no query sees are not read.
inline void PackGradientTile(const GradientPlan& g, int64_t unit, size_t t, RowBuffers buffers,
                             GradientTile& tile) {
  const Plan& plan = g.plan;
  const HeadRows values = ValuesOf(g.attention(), unit);
  const size_t count = plan.NumKeys(values.batch, t);
  tile.keys_finite = true;
  for (size_t c = 0; c < count; c += PanelCols()) {
    const size_t here = std::min(PanelCols(), count - c);
    PackKeyPanel(plan, unit, t, c, buffers, tile.keys.k);
    const float* panel = tile.keys.k + c * plan.depth;
    UnpackToPanels(panel, PanelCols(), here, plan.depth, plan.TileKeys(),
                   tile.key_rows + c * PanelCols());
    tile.keys_finite = AllFinite(panel, PanelCols() * plan.depth) && tile.keys_finite;
    const float* rows[PanelCols()];
    GatherRows(values, static_cast<int64_t>(t * kTileKeys + c), here, buffers, rows);
    PackTransposedPanel(RowPointers{rows}, here, g.DimV(), tile.values + c * g.DimV());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_GRADIENT_PACK_INL_H_
