// Second passes over the tiles: weights and scores for those who ask, weights for a visitor.
#if defined(HEED_EXACT_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_PAIRS_INL_H_
#undef HEED_EXACT_PAIRS_INL_H_
#else
#define HEED_EXACT_PAIRS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/exact/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {

inline void BlockLoop::FillPairs(const TensorView<float>& pairs, float value) const {
  for (size_t r = 0; r < num_rows_; ++r) {
    const Row& row = scratch_.rows[r];
    if (p_.kv_len > 0) std::fill_n(&pairs(batch_, row.head, row.query, 0), p_.kv_len, value);
  }
}

// Second pass: recomputes the scores of every tile and writes weights or scores.
inline void BlockLoop::WritePairs(const TensorView<float>& pairs, Pairs what) {
  FillPairs(pairs, what == Pairs::kWeights ? 0.0f : -std::numeric_limits<float>::infinity());
  const bool every_pair = what == Pairs::kScores && p_.outputs.score_stage != ScoreStage::kBiased;
  const size_t begin = every_pair ? 0 : BeginTile();
  const size_t end = every_pair ? plan_.num_tiles : EndTile();
  for (size_t t = begin; t < end; ++t) {
    const PackedTile packed = Tile(t);
    for (size_t r = 0; r < num_rows_; r += kScoreRows) {
      const auto write = [&](const ScoreTile& tile) { WritePairTile(pairs, what, tile, r); };
      if (every_pair) {
        write(EarlyScores(packed, t, r));
      } else {
        VisitScores(packed, t, r, write);
      }
    }
  }
}

// The scores of every pair before the keep rules.
inline ScoreTile BlockLoop::EarlyScores(const PackedTile& packed, size_t t, size_t r) const {
  ScoreTile tile = MakeScoreTile(t, r);
  FillScores(packed, r, tile);
  if (p_.outputs.score_stage == ScoreStage::kCapped && plan_.plugs.softcap != nullptr) {
    plan_.plugs.softcap->Apply(tile);
  }
  return tile;
}

// Does the visitor want the keys of this tile?
inline bool Shows(const WeightVisit& visit, const ScoreTile& tile) {
  const int64_t end = tile.key_begin + static_cast<int64_t>(kTileKeys);
  return tile.key_begin < visit.keys.end && end > visit.keys.begin;
}

inline void BlockLoop::ShowWeights(const WeightVisit& visit, int64_t part) {
  const size_t begin = std::max(BeginTile(), static_cast<size_t>(visit.keys.begin) / kTileKeys);
  const size_t visit_end = (static_cast<size_t>(visit.keys.end) + kTileKeys - 1) / kTileKeys;
  const size_t end = std::min(EndTile(), visit_end);
  for (size_t t = begin; t < end; ++t) {
    if (!seen_.MayMeet(t, 0, num_rows_)) continue;
    const PackedTile packed = Tile(t);
    for (size_t r = 0; r < num_rows_; r += kScoreRows) {
      VisitScores(packed, t, r, [&](const ScoreTile& tile) {
        for (size_t i = 0; i < tile.num_rows; ++i) WeighRow(tile, r, i);
        visit.visitor->Visit(tile, unit_ * visit.parts + part);
      });
    }
  }
}

inline void BlockLoop::WritePairTile(const TensorView<float>& pairs, Pairs what,
                                     const ScoreTile& tile, size_t r) {
  if (what == Pairs::kWeights) {
    for (size_t i = 0; i < tile.num_rows; ++i) WeighRow(tile, r, i);
  }
  CopyPairTile(pairs, tile);
}

inline void BlockLoop::CopyPairTile(const TensorView<float>& pairs, const ScoreTile& tile) const {
  const size_t end = std::min(tile.last, tile.num_keys);
  for (size_t i = 0; i < tile.num_rows; ++i) {
    const Row& row = tile.rows[i];
    float* to = &pairs(batch_, row.head, row.query, tile.key_begin);
    std::copy(tile.row_scores(i) + tile.first, tile.row_scores(i) + end, to + tile.first);
  }
}

// Replaces the scores of row i of the tile by final weights. A row lost to NaN is multiplied by
// NaN; the weights of its hidden keys are zeros all the same.
inline void BlockLoop::WeighRow(const ScoreTile& tile, size_t r, size_t i) {
  const RowEnd end = Finish(r + i);
  const bool lost = std::isnan(end.factor);
  if (lost) NoteVisible(tile, tile.scores);
  plan_.plugs.normalize->Weights(tile, states_.From(r), i, end);
  if (!lost) return;
  for (size_t c = tile.first; c < tile.last; ++c) {
    if (scratch_.visible[i * kTileKeys + c] == 0) tile.row_scores(i)[c] = 0.0f;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_PAIRS_INL_H_
