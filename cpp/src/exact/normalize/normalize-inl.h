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

// Rows whose scores are in flight at once: with kTileKeys columns they stay in L1, and the packed
// keys of a tile are read from L2 once per so many rows. Whole vectors of rows.
inline constexpr size_t kScoreRows = kTileRows == 6 ? 24 : 16;

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
  float lse;     // -inf for an empty row; meaningless for kernel sums
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

  // Closes row r of the states.
  virtual RowEnd Finish(const Row& row, RowStates states, size_t r) const = 0;

  // Second pass, when weights are asked for: replaces the scores of row r by final weights.
  virtual void Weights(const ScoreTile& tile, RowStates states, size_t r,
                       const RowEnd& end) const = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace heed
HWY_AFTER_NAMESPACE();

#endif  // HEED_EXACT_NORMALIZE_INL_H_
