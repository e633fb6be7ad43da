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
#include "src/simd/sigmoid-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class StickBreaking final : public SingleRowNormalize {
 protected:
  float NormalizeRow(const ScoreRows& rows, size_t r) const override {
    double left = 1;
    for (size_t t = rows.tiles.size(); t-- > 0;) left = BreakTile(rows.tiles[t], r, left);
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

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_STICK_BREAKING_INL_H_
