// Normalize plug: hard choice. The key with the largest score, the first one of several, has weight
// 1; the others count as if they were hidden.
#if defined(HEED_EXACT_NORMALIZE_HARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_NORMALIZE_HARD_INL_H_
#undef HEED_EXACT_NORMALIZE_HARD_INL_H_
#else
#define HEED_EXACT_NORMALIZE_HARD_INL_H_
#endif

#include <cmath>

#include "src/exact/normalize/rows-inl.h"
#include "src/exact/row_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class Hard final : public SingleRowNormalize {
 protected:
  float NormalizeRow(const ScoreRows& rows, size_t r) const override {
    const DF d;
    const float row_max = RowMax(rows, r);
    if (row_max == kMinusInfinity) return kMinusInfinity;
    if (std::isnan(row_max)) return LoseRow(rows, r);
    float* best = First(rows, r, row_max);
    ReplaceVisible(rows, r, [&](VF) HWY_ATTR { return hn::Set(d, kMinusInfinity); });
    *best = 1.0f;
    return 0.0f;
  }

 private:
  static float* First(const ScoreRows& rows, size_t r, float value) {
    for (const ScoreTile& tile : rows.tiles) {
      float* row = tile.row_scores(r);
      for (size_t c = tile.first; c < tile.last; ++c) {
        if (row[c] == value) return row + c;
      }
    }
    return nullptr;  // not reached: value is the row's maximum
  }
};

// The choice is constant almost everywhere: values have a gradient, scores have not.
class HardGradient final : public WeightRowGradient {
 protected:
  void ApplyToRow(const RowPair& rows, size_t r, const GradientRows&) const override {
    const DF d;
    ReplaceGradients(rows, r, [&](VF, VF) HWY_ATTR { return hn::Zero(d); });
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_HARD_INL_H_
