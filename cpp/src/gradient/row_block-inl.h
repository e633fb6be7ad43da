// The other half of GradientBlock, for normalisers that need whole rows: a few rows keep the scores
// of all their tiles, and the gradients of their weights, in two row buffers.
#if defined(HEED_GRADIENT_ROW_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_GRADIENT_ROW_BLOCK_INL_H_
#undef HEED_GRADIENT_ROW_BLOCK_INL_H_
#else
#define HEED_GRADIENT_ROW_BLOCK_INL_H_
#endif

#include <algorithm>

#include "src/gradient/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

inline void GradientBlock::ForEachBuffered(GradientStep step) {
  for (size_t r = 0; r < num_rows_; r += kScoreRows) {
    DifferentiateRows(r);
    for (size_t n = 0; n < own_.d_tiles.size(); ++n) {
      const ScoreTile& weights = scratch_.tiles[n];
      const ScoreTile& d_scores = own_.d_tiles[n];
      const GradientTile& keys = tiles_[static_cast<size_t>(weights.key_begin) / kTileKeys];
      FinishWeights(weights, keys);
      if (own_.biased.get() != nullptr) {
        ApplySlopes(d_scores, own_.biased.get() + (weights.scores - scratch_.row_buffer.get()));
      }
      const float* capped = own_.capped.get();
      if (capped != nullptr) capped += weights.scores - scratch_.row_buffer.get();
      (this->*step)({weights, d_scores, capped, keys, r});
    }
  }
}

// Fills the buffers of the rows from r on with weights and gradients of scores.
inline void GradientBlock::DifferentiateRows(size_t r) {
  capped_memory_ = own_.capped.get();
  biased_memory_ = own_.biased.get();
  FillRowBuffer(r, [&](size_t t) { return tiles_[t].keys; });
  own_.d_tiles.clear();
  for (const ScoreTile& tile : scratch_.tiles) {
    ScoreTile& d_scores = own_.d_tiles.emplace_back(tile);
    d_scores.scores = own_.d_scores.get() + (tile.scores - scratch_.row_buffer.get());
    FillWeightGradients(tiles_[static_cast<size_t>(tile.key_begin) / kTileKeys], r, d_scores);
  }
  const size_t count = std::min(kScoreRows, num_rows_ - r);
  const RowPair rows = {{scratch_.tiles, count, scratch_.row_scratch.get()},
                        {own_.d_tiles, count, own_.row_scratch.get()}};
  g_.plugs.rows->Apply(*plan_.plugs.rows, rows, row_terms_.From(r));
  if (table_queries_ == nullptr && heads_.table == nullptr) return;
  float* const queries =
      table_queries_ == nullptr ? nullptr : table_queries_ + r * static_cast<size_t>(p_.head_dim);
  g_.plugs.rows->AddSums(rows, {queries, heads_.table});
}

// -inf, a key that does not count, becomes 0; NaN stays.
inline void GradientBlock::FinishWeights(const ScoreTile& weights, const GradientTile& keys) {
  const DF d;
  const VF hidden = hn::Set(d, kMinusInfinity);
  if (MustSelect(keys)) NoteVisible(weights, weights.scores);
  for (size_t i = 0; i < weights.num_rows; ++i) {
    float* HWY_RESTRICT row = weights.row_scores(i);
    for (size_t c = weights.first; c < weights.last; c += hn::Lanes(d)) {
      const VF weight = hn::Load(d, row + c);
      hn::Store(hn::IfThenZeroElse(hn::Eq(weight, hidden), weight), d, row + c);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_GRADIENT_ROW_BLOCK_INL_H_
