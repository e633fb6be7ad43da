// The arithmetic of the statistics, compiled for every SIMD target: sums over tiles of weights.
#ifndef HEED_SRC_ANALYSIS_TILE_SUMS_H_
#define HEED_SRC_ANALYSIS_TILE_SUMS_H_

#include <cstddef>
#include <cstdint>

#include "src/exact/tile.h"

namespace heed {

// Sums over one row of a tile. The last two only as asked for.
struct RowSums {
  float weight;    // sum p
  float largest;   // max p
  float entropy;   // -sum p log p
  float distance;  // sum p |position - j|
};

struct RowSumsAsked {
  bool entropy;
  bool distance;
};

// Fills sums[r] for each row of the tile. Padding columns are set to 0.
void SumTileRows(const ScoreTile& tile, RowSumsAsked asked, RowSums* sums);

// sums[c] = sum of factors[r] * p over rows r = first, first + step, ... of the tile, for its
// columns c. Rows whose factor is 0 are left out, whatever they hold. Padding counts as 0.
void SumTileColumns(const ScoreTile& tile, size_t first, size_t step, const float* factors,
                    float* sums);

// Row r of a tile, at columns [begin, end), times the products of rows[r] with the values of its
// keys; `value` is that of key 0 of the tile. Cells of 0 stay 0, whatever their values are.
struct TileValues {
  const float* value;
  int64_t stride;
  size_t dim;
};
void MultiplyByDots(const ScoreTile& tile, size_t begin, size_t end, const float* const* rows,
                    const TileValues& values);

// Over two rows of weights of any length: sum a b, sum (a - b)^2, and 1/2 sum (a log(a / m) + b
// log(b / m)) with m = (a + b) / 2.
double SumProducts(const float* a, const float* b, size_t count);
double SumSquaredDifferences(const float* a, const float* b, size_t count);
double SumJensenShannon(const float* a, const float* b, size_t count);

}  // namespace heed

#endif  // HEED_SRC_ANALYSIS_TILE_SUMS_H_
