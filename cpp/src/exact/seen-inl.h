// What the rows of a block see of a tile, by all keep rules.
#if defined(HEED_EXACT_SEEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SEEN_INL_H_
#undef HEED_EXACT_SEEN_INL_H_
#else
#define HEED_EXACT_SEEN_INL_H_
#endif

#include <algorithm>

#include "src/exact/keep/keep-inl.h"
#include "src/exact/plan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

// Rows that see the same keys are asked once, and the next of them get the same answer: with blocks
// of 64 keys, asking each row of each score tile took 13 % of the time (AVX-512).
class SeenKeys {
 public:
  SeenKeys(const Plan& plan, int64_t batch, Scratch& scratch)
      : plan_(plan), plugs_(plan.plugs.keep), batch_(batch), scratch_(scratch) {}

  // To be called once the first rows of the scratch are filled.
  void FindRuns(size_t num_rows) {
    for (size_t r = num_rows; r-- > 0;) {
      const bool last = r + 1 == num_rows || !SeeTheSame(scratch_.rows[r], scratch_.rows[r + 1]);
      scratch_.run_ends[r] = last ? r + 1 : scratch_.run_ends[r + 1];
    }
  }

  // Of `count` rows from r, so many have to be asked: 1 when all see the same, or all.
  size_t DistinctRows(size_t r, size_t count) const {
    return r + count <= scratch_.run_ends[r] ? 1 : count;
  }

  // False when the keep plugs know that the rows see nothing of tile t.
  bool MayMeet(size_t t, size_t r, size_t count) const {
    return std::all_of(plugs_.begin(), plugs_.end(),
                       [&](const auto& keep) { return keep->MayMeet(PartOf(t, r, count)); });
  }

  // What `count` rows from r, at most kScoreRows, see of tile t; their bits are in the scratch.
  // Stays as it is until other rows or another tile are asked for.
  const VisiblePanels& Panels(size_t t, size_t r, size_t count) {
    if (t == tile_ && r >= first_ && r + count <= last_) return panels_;
    const size_t distinct = DistinctRows(r, count);
    tile_ = t;
    first_ = r;
    last_ = distinct == 1 ? scratch_.run_ends[r] : r + count;
    panels_ = {};
    KeyBits* bits = scratch_.key_bits.data();
    const KeepTile keys = PartOf(t, r, distinct);
    bool any = false;
    for (size_t i = 0; i < distinct; ++i) {
      const ColumnRange columns = VisibleColumns(keys.rows[i], keys.key_begin, keys.num_keys);
      any = any || columns.begin < columns.end;
      bits[i] = {};
      bits[i].SetRange(columns.begin, columns.end);
    }
    if (!any || !MayMeet(t, r, distinct)) return panels_;
    for (const auto& keep : plugs_) keep->Narrow(keys, bits);
    panels_ = FindPanels(bits, distinct);
    if (distinct == 1) {
      std::fill_n(bits, kScoreRows, bits[0]);
      std::fill_n(panels_.groups, kMaxRowGroups, bits[0]);
    }
    return panels_;
  }

 private:
  bool SeeTheSame(const Row& a, const Row& b) const {
    return a.keys.begin == b.keys.begin && a.keys.end == b.keys.end &&
           std::all_of(plugs_.begin(), plugs_.end(),
                       [&](const auto& keep) { return keep->SameKeys(batch_, a, b); });
  }

  // The part of tile t that lies before the rows [r, r + count).
  KeepTile PartOf(size_t t, size_t r, size_t count) const {
    return {batch_, scratch_.rows.data() + r, count, static_cast<int64_t>(t * kTileKeys),
            plan_.NumKeys(batch_, t)};
  }

  const Plan& plan_;
  const KeepPlugs& plugs_;
  int64_t batch_;
  Scratch& scratch_;
  // Whose answer this is: rows [first_, last_) of tile_; of no rows at first.
  size_t tile_ = 0;
  size_t first_ = 0;
  size_t last_ = 0;
  VisiblePanels panels_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_SEEN_INL_H_
