// Finishes whole rows of a normaliser that streams: for plugs between weights and values that need
// final weights.
#if defined(HEED_EXACT_NORMALIZE_BUFFERED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_NORMALIZE_BUFFERED_INL_H_
#undef HEED_EXACT_NORMALIZE_BUFFERED_INL_H_
#else
#define HEED_EXACT_NORMALIZE_BUFFERED_INL_H_
#endif

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "src/exact/normalize/normalize-inl.h"
#include "src/exact/normalize/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class Buffered final : public RowNormalize {
 public:
  Buffered(std::unique_ptr<NormalizePlug> plug, bool has_lse)
      : plug_(std::move(plug)), has_lse_(has_lse) {}

  // The scores of a tile as they were, the states of its rows, and their factors.
  size_t ScratchFloats() const override { return kScoreRows * (kTileKeys + 4); }

  void Normalize(const ScoreRows& rows, float* lse) const override {
    float* scores = rows.scratch;
    float* factor = scores + kScoreRows * kTileKeys;
    const RowStates states = {factor + 2 * kScoreRows, factor + 3 * kScoreRows};
    std::fill_n(states.row_max, kScoreRows, plug_->StartMax());
    std::fill_n(states.row_sum, kScoreRows, 0.0f);
    for (size_t t = 0; t < rows.tiles.size(); ++t) {
      float* rescale = factor + kScoreRows;
      Accumulate(rows.tiles[t], scores, states, rescale);
      for (size_t r = 0; r < rows.num_rows; ++r) {
        if (rescale[r] == kNoRescale) continue;
        for (size_t before = 0; before < t; ++before) Scale(rows.tiles[before], r, rescale[r]);
      }
    }
    if (rows.tiles.empty()) {
      std::fill_n(lse, rows.num_rows, kMinusInfinity);
      return;
    }
    for (size_t r = 0; r < rows.num_rows; ++r) {
      const Row& row = rows.tiles[0].rows[r];
      const RowEnd end = plug_->Finish(row, states, r);
      for (const ScoreTile& tile : rows.tiles) {
        if (end.empty) {  // of a kernel sum without mass: keys were visible
          std::fill(tile.row_scores(r) + tile.first, tile.row_scores(r) + tile.last,
                    kMinusInfinity);
        } else {
          Scale(tile, r, end.factor);
        }
      }
      lse[r] = has_lse_ ? plug_->Lse(row, states, r) : 0.0f;
    }
  }

 private:
  // The plug's weights, with -inf again where the key is hidden.
  void Accumulate(const ScoreTile& tile, float* HWY_RESTRICT scores, RowStates states,
                  float* rescale) const {
    const DF d;
    for (size_t r = 0; r < tile.num_rows; ++r) {
      std::copy(tile.row_scores(r) + tile.first, tile.row_scores(r) + tile.last,
                scores + r * kTileKeys + tile.first);
    }
    plug_->Accumulate(tile, states, rescale);
    const VF hidden = hn::Set(d, kMinusInfinity);
    for (size_t r = 0; r < tile.num_rows; ++r) {
      float* HWY_RESTRICT weights = tile.row_scores(r);
      for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
        const auto hide = hn::Eq(hn::Load(d, scores + r * kTileKeys + c), hidden);
        hn::Store(hn::IfThenElse(hide, hidden, hn::Load(d, weights + c)), d, weights + c);
      }
    }
  }

  static void Scale(const ScoreTile& tile, size_t r, float factor) {
    const DF d;
    const VF hidden = hn::Set(d, kMinusInfinity);
    float* HWY_RESTRICT weights = tile.row_scores(r);
    for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
      const VF w = hn::Load(d, weights + c);
      const VF scaled = hn::Mul(w, hn::Set(d, factor));
      hn::Store(hn::IfThenElse(hn::Eq(w, hidden), hidden, scaled), d, weights + c);
    }
  }

  std::unique_ptr<NormalizePlug> plug_;
  bool has_lse_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_BUFFERED_INL_H_
