// The loop for normalisers that need whole rows: a few rows keep the scores of all their tiles in
// the row buffer, are normalised, and only then meet the values. The other half of BlockLoop.
#if defined(HEED_EXACT_ROW_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_ROW_LOOP_INL_H_
#undef HEED_EXACT_ROW_LOOP_INL_H_
#else
#define HEED_EXACT_ROW_LOOP_INL_H_
#endif

#include <algorithm>
#include <span>

#include "src/exact/loop-inl.h"
#include "src/exact/pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline void BlockLoop::RunBuffered(int64_t part) {
  std::fill_n(scratch_.output.get(), num_rows_ * plan_.v_cols, 0.0f);
  if (p_.outputs.weights.has_value()) FillPairs(p_.outputs.weights, 0.0f);
  for (size_t r = 0; r < num_rows_; r += kScoreRows) {
    const std::span<const ScoreTile> tiles = FillRowBuffer(r, [&](size_t t) { return KeyTile(t); });
    const size_t count = std::min(kScoreRows, num_rows_ - r);
    float* lse = scratch_.row_max.get() + r;
    plan_.plugs.rows->Normalize({tiles, count, scratch_.row_scratch.get()}, lse);
    PackedTile packed{};
    size_t packed_tile = plan_.num_tiles;  // none
    for (const ScoreTile& tile : tiles) {
      const size_t t = static_cast<size_t>(tile.key_begin) / kTileKeys;
      if (t != packed_tile) packed = ValueTile(packed_tile = t);
      FinishTile(packed, tile, r, part);
    }
    for (size_t i = 0; i < count; ++i) {
      if (p_.outputs.lse.has_value()) WriteLse(r + i, lse[i]);
      WriteOutput(r + i, {kNoRescale, false});
    }
  }
  score_memory_ = scratch_.scores.get();
  if (p_.outputs.scores.has_value()) WritePairs(p_.outputs.scores, Pairs::kScores);
}

// Where the tiles are not shared, a group of rows packs panels of keys as it scores them, and
// values once it knows its weights.
inline PackedTile BlockLoop::KeyTile(size_t t) {
  if (source_.shared != nullptr) return source_.shared[t];
  return {scratch_.k_tile.get(), nullptr, true, false, false};
}

inline PackedTile BlockLoop::ValueTile(size_t t) {
  if (source_.shared != nullptr) return source_.shared[t];
  PackedTile tile = {nullptr, scratch_.v_tile.get(), true};
  tile.v_finite = PackValues(plan_, unit_, t, scratch_.buffers(), tile.v);
  return tile;
}

// Weights of a tile to wherever they are wanted, then through the weight plugs to the values.
inline void BlockLoop::FinishTile(const PackedTile& packed, const ScoreTile& tile, size_t r,
                                  int64_t part) {
  const DF d;
  const bool select = !packed.v_finite;
  const bool replaced = !plan_.plugs.weights.empty() && plan_.plugs.weights[0]->NeedsFinal();
  if (select || replaced) NoteVisible(tile, tile.scores);
  for (size_t i = 0; i < tile.num_rows; ++i) {
    float* HWY_RESTRICT row = tile.row_scores(i);
    for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
      // -inf, a key that does not count, becomes 0; NaN stays.
      hn::Store(RaiseToBound(hn::Load(d, row + c), hn::Zero(d)), d, row + c);
    }
  }
  if (replaced) ReplaceWeights(tile);
  if (p_.outputs.weights.has_value()) CopyPairTile(p_.outputs.weights, tile);
  if (plan_.visit != nullptr && Shows(*plan_.visit, tile)) {
    plan_.visit->visitor->Visit(tile, unit_ * plan_.visit->parts + part);
  }
  for (const auto& plug : plan_.plugs.weights) {
    if (!plug->NeedsFinal()) plug->Apply(tile);
  }
  AddRelativeValues(tile, r);
  HWY_ALIGN float rescale[kScoreRows];
  std::fill_n(rescale, kScoreRows, kNoRescale);
  if (select) {
    AggregateVisible(packed, tile, r, rescale);
  } else {
    Aggregate(packed, tile, r, rescale);
  }
}

// Final weights through the plugs that ask for them. What was not visible stays without weight.
inline void BlockLoop::ReplaceWeights(const ScoreTile& tile) {
  for (const auto& plug : plan_.plugs.weights) {
    if (plug->NeedsFinal()) plug->Apply(tile);
  }
  for (size_t i = 0; i < tile.num_rows; ++i) {
    float* row = tile.row_scores(i);
    for (size_t c = tile.first; c < tile.last; ++c) {
      row[c] = scratch_.visible[i * kTileKeys + c] == 0 ? 0.0f : row[c];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_ROW_LOOP_INL_H_
