// Normalize plug: stick breaking. From the last visible key backwards, each key takes its share
// sigmoid(s) of what the later ones left. Source: Tan et al. 2024, arXiv:2410.17980.
//
// What is left is a product in double: it keeps its relative precision over any number of keys, and
// below 1e-308 no weight is a float anyway. Sums of logarithms would need a second exponential.
#if defined(HEED_EXACT_NORMALIZE_STICK_BREAKING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_NORMALIZE_STICK_BREAKING_INL_H_
#undef HEED_EXACT_NORMALIZE_STICK_BREAKING_INL_H_
#else
#define HEED_EXACT_NORMALIZE_STICK_BREAKING_INL_H_
#endif

#include "src/exact/normalize/rows-inl.h"
#include "src/exact/row_gradient-inl.h"
#include "src/simd/sigmoid-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class StickBreaking final : public SingleRowNormalize {
 public:
  static void BreakRow(const ScoreRows& rows, size_t r) {
    double left = 1;
    for (size_t t = rows.tiles.size(); t-- > 0;) left = BreakTile(rows.tiles[t], r, left);
  }

 protected:
  float NormalizeRow(const ScoreRows& rows, size_t r) const override {
    BreakRow(rows, r);
    return 0.0f;
  }

 private:
  static double BreakTile(const ScoreTile& tile, size_t r, double left) {
    const DF d;
    HWY_ALIGN float exps[kTileKeys];
    float* HWY_RESTRICT row = tile.row_scores(r);
    for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
      hn::Store(ExpNegAbs(d, hn::Load(d, row + c)), d, exps + c);
    }
    for (size_t c = tile.last; c-- > tile.first;) {
      if (row[c] == kMinusInfinity) continue;
      const double e = static_cast<double>(exps[c]);
      const double large = 1 / (1 + e);  // the larger of sigmoid(s) and 1 - sigmoid(s)
      const double small = e * large;
      const bool positive = row[c] >= 0;
      row[c] = static_cast<float>(left * (positive ? large : small));
      left *= positive ? small : large;
    }
    return left;
  }
};

// d_s_j = (1 - sigmoid(s_j)) p_j d_p_j - sigmoid(s_j) sum of p_l d_p_l over the keys l before j,
// which got what j left.
class StickBreakingGradient final : public RowGradient {
 public:
  // The scores of a row.
  size_t ScratchFloats(size_t num_tiles) const override { return num_tiles * kTileKeys; }

  void Apply(const RowNormalize&, const RowPair& rows, const GradientRows&) const override {
    float* const scores = rows.gradients.scratch;
    for (size_t r = 0; r < rows.scores.num_rows; ++r) {
      for (const ScoreTile& tile : rows.scores.tiles) {
        const float* row = tile.row_scores(r);
        std::copy(row + tile.first, row + tile.last, scores + tile.key_begin + tile.first);
      }
      StickBreaking::BreakRow(rows.scores, r);
      double before = 0;
      for (size_t t = 0; t < rows.scores.tiles.size(); ++t) {
        const ScoreTile& tile = rows.scores.tiles[t];
        before = ApplyToTile(tile, r, scores + tile.key_begin,
                             rows.gradients.tiles[t].row_scores(r), before);
      }
    }
  }

 private:
  static double ApplyToTile(const ScoreTile& tile, size_t r, const float* HWY_RESTRICT scores,
                            float* HWY_RESTRICT gradients, double before) {
    const DF d;
    HWY_ALIGN float shares[kTileKeys];
    const float* HWY_RESTRICT weights = tile.row_scores(r);
    for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
      hn::Store(Sigmoid(d, hn::Load(d, scores + c)), d, shares + c);
    }
    for (size_t c = tile.first; c < tile.last; ++c) {
      float& g = gradients[c];
      if (weights[c] == kMinusInfinity) {
        g = 0;
        continue;
      }
      const double share = static_cast<double>(shares[c]);
      const double own = static_cast<double>(weights[c]) * static_cast<double>(g);
      g = static_cast<float>((1 - share) * own - share * before);
      before += own;
    }
    return before;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_STICK_BREAKING_INL_H_
