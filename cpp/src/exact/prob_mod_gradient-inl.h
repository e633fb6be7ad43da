// The derivative of a user's function on weights (weights/prob_mod-inl.h), around that of the
// normaliser: with m for the function, dp = m'(p) d m(p), and the normaliser goes on from there.
#if defined(HEED_EXACT_PROB_MOD_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_PROB_MOD_GRADIENT_INL_H_
#undef HEED_EXACT_PROB_MOD_GRADIENT_INL_H_
#else
#define HEED_EXACT_PROB_MOD_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <memory>
#include <utility>

#include "src/exact/row_gradient-inl.h"
#include "src/exact/user_tile.h"
#include "src/gradient/problem.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class ProbModGradient final : public RowGradient {
 public:
  // Of the two derivatives of normalisers, `rows` if it is not nullptr.
  ProbModGradient(const GradientProblem& g, const NormalizeGradient* streaming,
                  std::unique_ptr<RowGradient> rows)
      : g_(g), streaming_(streaming), rows_(std::move(rows)) {}

  // Those of `rows`, a copy of the row buffer, and a tile.
  size_t ScratchFloats(size_t num_tiles) const override {
    return InnerFloats(num_tiles) + (num_tiles + 1) * kScoreRows * kTileKeys;
  }

  void Apply(const RowNormalize& normalize, const RowPair& rows,
             const GradientRows& terms) const override {
    if (rows.scores.tiles.empty()) return;
    for (const ScoreTile& tile : rows.scores.tiles) CopyCells(tile, Kept(rows, tile));
    HWY_ALIGN float lse[kScoreRows];
    normalize.Normalize(rows.scores, lse);
    for (size_t t = 0; t < rows.scores.tiles.size(); ++t) {
      ApplySlopes(rows, rows.scores.tiles[t], rows.gradients.tiles[t]);
    }
    for (size_t r = 0; r < rows.scores.num_rows; ++r) terms.mean[r] = Mean(rows, r);
    // The normaliser's derivative starts from scores; the weights wait where those were kept.
    for (const ScoreTile& tile : rows.scores.tiles) SwapCells(tile, Kept(rows, tile));
    ApplyNormaliser(normalize, rows, terms);
    for (const ScoreTile& tile : rows.scores.tiles) WriteWeights(rows, tile);
  }

  size_t TableSize() const override { return rows_ == nullptr ? 0 : rows_->TableSize(); }
  void AddSums(const RowPair& rows, const RowSums& sums) const override {
    rows_->AddSums(rows, sums);
  }

 private:
  size_t InnerFloats(size_t num_tiles) const {
    return rows_ == nullptr ? 0 : RoundUp(rows_->ScratchFloats(num_tiles), kTileKeys);
  }
  size_t NumTiles() const {
    return (static_cast<size_t>(g_.attention.kv_len) + kTileKeys - 1) / kTileKeys;
  }

  // Places for the cells of a tile: in the copy of the row buffer, and apart.
  ScoreTile Kept(const RowPair& rows, ScoreTile tile) const {
    const size_t place = static_cast<size_t>(tile.key_begin) / kTileKeys + 1;
    tile.scores = Apart(rows, tile).scores + place * kScoreRows * kTileKeys;
    return tile;
  }
  ScoreTile Apart(const RowPair& rows, ScoreTile tile) const {
    tile.scores = rows.gradients.scratch + InnerFloats(NumTiles());
    return tile;
  }

  static void CopyCells(const ScoreTile& from, const ScoreTile& to) {
    for (size_t r = 0; r < from.num_rows; ++r) {
      const float* row = from.row_scores(r);
      std::copy(row + from.first, row + from.last, to.row_scores(r) + from.first);
    }
  }
  static void SwapCells(const ScoreTile& a, const ScoreTile& b) {
    for (size_t r = 0; r < a.num_rows; ++r) {
      float* row = a.row_scores(r);
      std::swap_ranges(row + a.first, row + a.last, b.row_scores(r) + a.first);
    }
  }

  // What `function` makes of weights, in a place apart. As in forward, it is shown 0 where a key
  // does not count.
  ScoreTile Shown(const RowPair& rows, const ScoreTile& weights,
                  const TileFunction& function) const {
    const DF d;
    const ScoreTile shown = Apart(rows, weights);
    for (size_t r = 0; r < weights.num_rows; ++r) {
      const float* HWY_RESTRICT from = weights.row_scores(r);
      float* HWY_RESTRICT to = shown.row_scores(r);
      for (size_t c = weights.first; c < weights.last; c += hn::Lanes(d)) {
        hn::Store(RaiseToBound(hn::Load(d, from + c), hn::Zero(d)), d, to + c);
      }
    }
    function(UserTile(shown).All(shown));
    return shown;
  }

  // A gradient of 0 stays 0, whatever the slope is.
  void ApplySlopes(const RowPair& rows, const ScoreTile& weights,
                   const ScoreTile& gradients) const {
    const DF d;
    const ScoreTile slopes = Shown(rows, weights, g_.gradients.prob_mod_slope);
    for (size_t r = 0; r < weights.num_rows; ++r) {
      float* HWY_RESTRICT row = gradients.row_scores(r);
      for (size_t c = weights.first; c < weights.last; c += hn::Lanes(d)) {
        const VF g = hn::Load(d, row + c);
        const auto hidden =
            hn::Eq(hn::Load(d, weights.row_scores(r) + c), hn::Set(d, kMinusInfinity));
        const auto none = hn::Or(hidden, hn::Eq(g, hn::Zero(d)));
        const VF by = hn::Mul(g, hn::Load(d, slopes.row_scores(r) + c));
        hn::Store(hn::IfThenZeroElse(none, by), d, row + c);
      }
    }
  }

  // What softmax takes from every gradient of a weight: no longer d_out . output - d_lse.
  float Mean(const RowPair& rows, size_t r) const {
    const DF d;
    const double sum = SumOverPairs(rows, r, [&](VF weight, VF g) HWY_ATTR {
      const auto hidden = hn::Eq(weight, hn::Set(d, kMinusInfinity));
      return hn::IfThenZeroElse(hidden, hn::Mul(weight, g));
    });
    const ScoreTile& tile = rows.scores.tiles[0];
    const TensorView<const float>& d_lse = g_.gradients.d_lse;
    const float less =
        d_lse.has_value() ? d_lse(tile.batch, tile.rows[r].head, tile.rows[r].query, 0) : 0.0f;
    return static_cast<float>(sum) - less;
  }

  void ApplyNormaliser(const RowNormalize& normalize, const RowPair& rows,
                       const GradientRows& terms) const {
    if (rows_ != nullptr) return rows_->Apply(normalize, rows, terms);
    for (size_t t = 0; t < rows.scores.tiles.size(); ++t) {
      streaming_->Apply(rows.scores.tiles[t], rows.gradients.tiles[t].scores, terms);
    }
  }

  void WriteWeights(const RowPair& rows, const ScoreTile& tile) const {
    const DF d;
    const ScoreTile weights = Kept(rows, tile);
    const ScoreTile shown = Shown(rows, weights, g_.attention.options.prob_mod);
    for (size_t r = 0; r < tile.num_rows; ++r) {
      for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
        const VF before = hn::Load(d, weights.row_scores(r) + c);
        const auto hidden = hn::Eq(before, hn::Set(d, kMinusInfinity));
        const VF after = hn::Load(d, shown.row_scores(r) + c);
        hn::Store(hn::IfThenElse(hidden, before, after), d, tile.row_scores(r) + c);
      }
    }
  }

  const GradientProblem& g_;
  const NormalizeGradient* streaming_;
  std::unique_ptr<RowGradient> rows_;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_PROB_MOD_GRADIENT_INL_H_
