// Normalisers that need whole rows of scores before the first weight: the row buffer holds them,
// tile by tile, while they are turned into weights.
#if defined(HEED_EXACT_NORMALIZE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_NORMALIZE_ROWS_INL_H_
#undef HEED_EXACT_NORMALIZE_ROWS_INL_H_
#else
#define HEED_EXACT_NORMALIZE_ROWS_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "hwy/highway.h"
#include "src/exact/row_groups-inl.h"
#include "src/exact/tile.h"
#include "src/simd/exp2-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The scores of a few rows: one tile after the other in ascending order of keys; tiles that no row
// sees are left out. Every cell [first, last) of a tile has a score, -inf where the key is hidden.
struct ScoreRows {
  std::span<const ScoreTile> tiles;
  size_t num_rows;
  float* scratch;  // as many floats as the plug asked for
};

class RowNormalize {
 public:
  virtual ~RowNormalize() = default;

  // Floats of scratch memory per thread.
  virtual size_t ScratchFloats() const { return 0; }

  // Replaces scores by final weights: -inf where the key does not count, because it is hidden or
  // because the plug leaves it out, else a number >= 0 or NaN. Writes each row's log denominator to
  // `lse`, -inf for an empty row, anything where there is no denominator.
  virtual void Normalize(const ScoreRows& rows, float* lse) const = 0;
};

// A plug that treats each row by itself.
class SingleRowNormalize : public RowNormalize {
 public:
  void Normalize(const ScoreRows& rows, float* lse) const override {
    for (size_t r = 0; r < rows.num_rows; ++r) lse[r] = NormalizeRow(rows, r);
  }

 protected:
  virtual float NormalizeRow(const ScoreRows& rows, size_t r) const = 0;
};

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Calls body(scores, vector) for each vector of row r, in ascending order of keys.
template <class Body>
HWY_INLINE void ForEachVector(const ScoreRows& rows, size_t r, Body&& body) {
  const DF d;
  for (const ScoreTile& tile : rows.tiles) {
    float* HWY_RESTRICT row = tile.row_scores(r);
    for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d))
      body(row + c, hn::Load(d, row + c));
  }
}

// Replaces each vector s of row r by body(s), except for the cells that do not count, -inf.
template <class Body>
HWY_INLINE void ReplaceVisible(const ScoreRows& rows, size_t r, Body&& body) {
  const DF d;
  ForEachVector(rows, r, [&](float* HWY_RESTRICT at, VF s) HWY_ATTR {
    const VF hidden = hn::Set(d, kMinusInfinity);
    hn::Store(hn::IfThenElse(hn::Eq(s, hidden), hidden, body(s)), d, at);
  });
}

// What a row holds: its largest score, -inf for an empty row, NaN when one of the scores is.
inline float RowMax(const ScoreRows& rows, size_t r) {
  const DF d;
  VF max = hn::Set(d, kMinusInfinity);
  VF nan = hn::Zero(d);
  ForEachVector(rows, r, [&](float*, VF s) HWY_ATTR {
    max = hn::IfThenElse(hn::Gt(s, max), s, max);
    nan = hn::IfThenElse(hn::IsNaN(s), s, nan);
  });
  const float lost = hn::ReduceSum(d, nan);
  if (std::isnan(lost)) return lost;
  // Not every target's ReduceMax knows a number below the lowest finite one.
  if (hn::AllTrue(d, hn::Eq(max, hn::Set(d, kMinusInfinity)))) return kMinusInfinity;
  return hn::ReduceMax(d, max);
}

// A row that a visible NaN (or, where scores are compared by differences, +inf) has made worthless.
inline float LoseRow(const ScoreRows& rows, size_t r) {
  const DF d;
  const VF nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  ReplaceVisible(rows, r, [&](VF) HWY_ATTR { return nan; });
  return std::numeric_limits<float>::quiet_NaN();
}

// Sum of body(s) over the row: a partial sum a tile, so that long rows round no more than short
// ones.
template <class Body>
HWY_INLINE double SumOver(const ScoreRows& rows, size_t r, Body&& body) {
  const DF d;
  double total = 0;
  for (const ScoreTile& tile : rows.tiles) {
    const float* HWY_RESTRICT row = tile.row_scores(r);
    VF sum = hn::Zero(d);
    for (size_t c = tile.first; c < tile.last; c += hn::Lanes(d)) {
      sum = hn::Add(sum, body(hn::Load(d, row + c)));
    }
    total += static_cast<double>(hn::ReduceSum(d, sum));
  }
  return total;
}

// Softmax of a row with an optional sink (-inf: none). Returns the log of the denominator.
inline float SoftmaxRow(const ScoreRows& rows, size_t r, float sink) {
  const DF d;
  const float row_max = RowMax(rows, r);
  if (row_max == kMinusInfinity) return kMinusInfinity;
  if (!std::isfinite(row_max)) return LoseRow(rows, r);
  const float top = row_max > sink ? row_max : sink;
  const VF shift = hn::Set(d, top);
  const VF to_log2 = hn::Set(d, kLog2E);
  ReplaceVisible(rows, r, [&](VF s) HWY_ATTR {
    VF x[1] = {hn::Mul(hn::Sub(s, shift), to_log2)};
    Exp2NonPositive(d, x);
    return x[0];
  });
  const double sum = SumOver(rows, r, [&](VF w) HWY_ATTR { return RaiseToBound(w, hn::Zero(d)); }) +
                     std::exp(static_cast<double>(sink - top));
  const VF factor = hn::Set(d, static_cast<float>(1 / sum));
  ReplaceVisible(rows, r, [&](VF w) HWY_ATTR { return hn::Mul(w, factor); });
  return static_cast<float>(static_cast<double>(top) + std::log(sum));
}

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_ROWS_INL_H_
