// Score plug: scaled dot product of bfloat16 numbers, s = scale * q.k, two products a step, or
// tiles of them.
#if defined(HEED_EXACT_SCORE_PAIR_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_SCORE_PAIR_DOT_INL_H_
#undef HEED_EXACT_SCORE_PAIR_DOT_INL_H_
#else
#define HEED_EXACT_SCORE_PAIR_DOT_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/score/score-inl.h"
#include "src/simd/bfloat16-inl.h"
#include "src/simd/tile_products-inl.h"

#if HWY_NATIVE_DOT_BF16
HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

static_assert(kScoreRows <= kUnitRows);

class PairDotScore final : public ScorePlug {
 public:
  PairDotScore(float scale, size_t head_dim, TileUnit unit)
      : scale_(scale),
        head_dim_(head_dim),
        unit_(unit),
        row_(RoundUp((head_dim + 1) / 2, kStepPairs)) {}
  size_t Depth() const override { return unit_ == TileUnit::kNone ? (head_dim_ + 1) / 2 : row_; }
  size_t QueryScratch() const override { return kTileRows * row_; }
  size_t KeyScratch() const override { return PanelCols() * row_; }

  void PackQueries(const float* const* rows, const Row*, size_t count, float* to,
                   float* scratch) const override {
    const float* pairs[kTileRows];
    if (unit_ != TileUnit::kNone) return ToPairRows(rows, count, to, pairs);
    ToPairRows(rows, count, scratch, pairs);
    TransposeRows(pairs, count, Depth(), to, count);
  }
  void PackKeys(const float* const* rows, size_t count, int64_t, float* panel,
                float* scratch) const override {
    const float* pairs[PanelCols()];
    ToPairRows(rows, count, scratch, pairs);
    PackTransposedPanel(RowPointers{pairs}, count, Depth(), panel);
  }
  void Fill(const float* queries, const float* panels, ScoreTile& tile) const override {
    if (unit_ != TileUnit::kNone) return FillByTiles(queries, panels, tile);
    FillScores(MultiplyPairs(), Depth(), Depth(), queries, panels, tile, StoreScaled{scale_});
  }

 private:
  // All rows at once, whatever each group of them sees of the tile.
  void FillByTiles(const float* queries, const float* panels, ScoreTile& tile) const {
    const size_t depth = Depth();
    MultiplyTiles(unit_, {.rows = tile.num_rows,
                          .steps = depth / kStepPairs,
                          .a = queries,
                          .a_stride = depth,
                          .panels = panels + tile.first * depth,
                          .panel_stride = depth * PanelCols(),
                          .num_panels = (tile.last - tile.first) / PanelCols(),
                          .c = tile.scores + tile.first,
                          .c_stride = kTileKeys});
    const DF d;
    const VF scale = hn::Set(d, scale_);
    for (size_t r = 0; r < tile.num_rows; ++r) {
      float* HWY_RESTRICT row = tile.row_scores(r);
      for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
        hn::Store(hn::Mul(hn::Load(d, row + c), scale), d, row + c);
      }
    }
  }

  void ToPairRows(const float* const* rows, size_t count, float* to, const float** pairs) const {
    for (size_t r = 0; r < count; ++r) {
      RowToPairs(rows[r], head_dim_, to + r * row_);
      pairs[r] = to + r * row_;
    }
  }

  float scale_;
  size_t head_dim_;
  TileUnit unit_;  // if any, rows of queries are packed as they are, and rows are whole steps
  size_t row_;     // floats of a row of pairs: whole vectors, and whole steps
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();
#endif  // HWY_NATIVE_DOT_BF16

#endif  // HEED_EXACT_SCORE_PAIR_DOT_INL_H_
