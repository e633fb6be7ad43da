// Score socket: packs queries and keys, and fills a tile with their scores.
#if defined(HEED_EXACT_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SCORE_INL_H_
#undef HEED_EXACT_SCORE_INL_H_
#else
#define HEED_EXACT_SCORE_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/row_groups-inl.h"
#include "src/exact/stored_rows-inl.h"
#include "src/exact/tile.h"
#include "src/simd/pack-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Packs q and k for the register tile, and fills a tile with their scores. What a score does to
// queries and keys one by one (scaling, normalising, projecting) happens while they are packed:
// once for each query, once for each key of a KV head.
class ScorePlug {
 public:
  virtual ~ScorePlug() = default;

  // Floats of a packed key, and of a packed query, whose first Depth() meet the key's.
  virtual size_t Depth() const = 0;
  virtual size_t QueryDepth() const { return Depth(); }

  // Floats of scratch that PackQueries and PackKeys need.
  virtual size_t QueryScratch() const { return 0; }
  virtual size_t KeyScratch() const { return 0; }

  // Packs queries as one row group, [QueryDepth()][count]. queries[i] says which query rows[i] is.
  virtual void PackQueries(const float* const* rows, const Row* queries, size_t count, float* to,
                           float* scratch) const = 0;

  // Packs up to PanelCols() keys as one panel, [Depth()][PanelCols()]; missing ones become zeros.
  virtual void PackKeys(const float* const* rows, size_t count, int64_t kv_head, float* panel,
                        float* scratch) const = 0;

  // Writes columns [first, last) of the tile. `queries` holds row groups of kTileRows (the last one
  // may be shorter), `panels` the tile's packed keys.
  virtual void Fill(const float* queries, const float* panels, ScoreTile& tile) const = 0;

  // Can FillStored() take the place of PackKeys() and Fill() where there are so few queries, and
  // keys are stored so?
  virtual bool FillsStored(size_t, DType) const { return false; }
  // The same scores, bit for bit, from keys where they lie and as they are stored.
  virtual void FillStored(const float*, DType, const StoredRows&, ScoreTile&) const {}

  // Can FillFromRows() score so many queries? It reads keys in the order of memory, takes queries
  // from PackQueryRows(), [count][QueryDepth()], and adds in another order than Fill(). It takes
  // keys of every type that DotsStoredRows() names.
  virtual bool FillsFromRows(size_t) const { return false; }
  virtual void PackQueryRows(const float* const*, size_t, float*) const {}
  virtual void FillFromRows(const float*, DType, const StoredRows&, ScoreTile&) const {}
};

// The half of the panel at column c that holds all that is seen of it, as columns of the panel;
// both halves where each holds some.
HWY_INLINE ColumnRange HalvesSeen(const ColumnRange& seen, size_t c) {
  const size_t half = PanelCols() / 2;
  return {seen.begin >= c + half ? half : 0, seen.end <= c + half ? half : 2 * half};
}

// Runs the register tile over all panels and row groups of a tile, as far as the rows of a group
// see the panel. Panels are the outer loop: one stays in L1 while the few packed query rows pass.
// Where only half a panel is seen, which happens at both ends of a window and on the diagonal of
// causal attention, only that half is computed; vectors of 4 leave too little over for it to pay.
template <class Op, class Store>
HWY_INLINE void FillScores(Op op, size_t depth, size_t query_depth,
                           const float* HWY_RESTRICT queries, const float* HWY_RESTRICT panels,
                           const ScoreTile& tile, Store store) {
  for (size_t c = tile.first; c < tile.last; c += PanelCols()) {
    const float* panel = panels + c * depth;
    ForEachRowGroup(tile, [&]<size_t kRows>(size_t r, const ColumnRange& columns) HWY_ATTR {
      if (c + PanelCols() <= columns.begin || c >= columns.end) return;
      const float* group = queries + r * query_depth;
      float* to = tile.row_scores(r) + c;
      if constexpr (hn::MaxLanes(DF()) > 4) {
        const ColumnRange seen = HalvesSeen(columns, c);
        if (seen.end - seen.begin < PanelCols()) {
          return RegisterTile<ALayout<kRows, 1>, kRows, 1>(op, group, panel + seen.begin, depth,
                                                           to + seen.begin, kTileKeys, store);
        }
      }
      RegisterTile<ALayout<kRows, 1>, kRows>(op, group, panel, depth, to, kTileKeys, store);
    });
  }
}

// The same for dot products, compiled once: several scores are dot products of what they pack.
HWY_NOINLINE inline void FillDots(size_t depth, size_t query_depth, const float* queries,
                                  const float* panels, const ScoreTile& tile) {
  FillScores(MultiplyAccumulate(), depth, query_depth, queries, panels, tile, StoreOnly());
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SCORE_INL_H_
