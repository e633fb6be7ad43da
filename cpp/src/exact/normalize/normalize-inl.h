// Normalize socket: turns scores into weights while tiles stream by, and closes the rows.
#if defined(HEED_EXACT_NORMALIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_NORMALIZE_INL_H_
#undef HEED_EXACT_NORMALIZE_INL_H_
#else
#define HEED_EXACT_NORMALIZE_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/row_groups-inl.h"
#include "src/exact/tile.h"
#include "src/simd/exp2-inl.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What a tile's scores are measured in. The exponential is a power of two; where nothing else looks
// at the scores, log2(e) is folded into the packed queries and costs nothing.
struct NaturalUnits {
  static constexpr float kPerNat = 1.0f;
  static HWY_INLINE VF ToLog2(DF d, VF s) { return hn::Mul(s, hn::Set(d, kLog2E)); }
};
struct Log2Units {
  static constexpr float kPerNat = kLog2E;
  static HWY_INLINE VF ToLog2(DF, VF s) { return s; }
};

// Running statistics of rows: the largest score so far and the sum of weights relative to it.
// Apart, so that a plug can treat the rows of a tile as vectors; aligned, with room for whole
// vectors.
struct RowStates {
  float* row_max;
  float* row_sum;
  RowStates From(size_t r) const { return {row_max + r, row_sum + r}; }
};

// What a row is multiplied by when its maximum did not grow: leave it alone.
inline constexpr float kNoRescale = 1.0f;

// What is left to do with a finished row: multiply the accumulated output by `factor`.
struct RowEnd {
  float factor;  // 0 for an empty row
  bool empty;
};

class NormalizePlug {
 public:
  virtual ~NormalizePlug() = default;

  // The maximum of a row that has seen nothing; its sum is 0.
  virtual float StartMax() const = 0;

  // Replaces the tile's scores, columns [first, last), by unnormalised weights, adds them to the
  // states, and writes what each row's output so far must be multiplied by to `rescale`.
  virtual void Accumulate(const ScoreTile& tile, RowStates states, float* rescale) const = 0;

  // Whether rows may be split over tiles and merged: only then is Merge called.
  virtual bool CanSplit() const { return false; }
  // Takes the states of `rows` rows over other tiles into `into`, and writes what each row's output
  // so far and the other one must be multiplied by before they are added.
  virtual void Merge(RowStates /*into*/, RowStates /*from*/, size_t /*rows*/, float* /*scale_into*/,
                     float* /*scale_from*/) const {}

  // Closes row r of the states.
  virtual RowEnd Finish(const Row& row, RowStates states, size_t r) const = 0;

  // Log of the denominator of row r, -inf for an empty row. Only called where it is defined.
  virtual float Lse(const Row& row, RowStates states, size_t r) const = 0;

  // The maximum to write to a row's state so that a sum of 1 means the denominator e^lse. Only
  // called where Lse is defined.
  virtual float MaxOfLse(float lse) const { return lse; }

  // Second pass, when weights are asked for: replaces the scores of row r by final weights.
  virtual void Weights(const ScoreTile& tile, RowStates states, size_t r,
                       const RowEnd& end) const = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_INL_H_
