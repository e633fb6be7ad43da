// Normalize socket: turns scores into weights while tiles stream by, and closes the rows.
#if defined(HEED_EXACT_NORMALIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_EXACT_NORMALIZE_INL_H_
#undef HEED_EXACT_NORMALIZE_INL_H_
#else
#define HEED_EXACT_NORMALIZE_INL_H_
#endif

#include "hwy/highway.h"
#include "src/exact/tile.h"
#include "src/simd/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Running statistics of a row: the largest score so far and the sum of weights relative to it.
struct RowState {
  float row_max;
  float row_sum;
};

// What is left to do with a finished row: multiply the accumulated output by `factor`.
struct RowEnd {
  float factor;  // 0 for an empty row
  float lse;     // -inf for an empty row; meaningless for kernel sums
  bool empty;
};

class NormalizePlug {
 public:
  virtual ~NormalizePlug() = default;

  virtual RowState Start() const = 0;

  // Replaces the scores of row r, columns [first, last), by unnormalised weights, adds them to the
  // state, and returns what the row's output so far must be multiplied by (1 = leave it alone).
  virtual float Accumulate(const ScoreTile& tile, size_t r, RowState& state) const = 0;

  virtual RowEnd Finish(const Row& row, const RowState& state) const = 0;

  // Second pass, when weights are asked for: replaces the scores of row r by final weights.
  virtual void Weights(const ScoreTile& tile, size_t r, const RowState& state,
                       const RowEnd& end) const = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_INL_H_
