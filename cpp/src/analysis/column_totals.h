// Sums over rows, for every key: one sum a part of the rows, so that threads never meet and results
// do not depend on them.
#ifndef HEED_SRC_ANALYSIS_COLUMN_TOTALS_H_
#define HEED_SRC_ANALYSIS_COLUMN_TOTALS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "heed/tensor.h"
#include "src/exact/problem.h"
#include "src/exact/tile.h"

namespace heed {

class ColumnTotals {
 public:
  // `series` sums for each key: kPerHead, or a number of mixtures (AddMixtures).
  static constexpr int64_t kPerHead = -1;
  ColumnTotals(const AttentionProblem& p, int64_t parts, int64_t series);

  // Adds the weights of the tile's rows to the sums of their heads.
  void AddHeads(const ScoreTile& tile, int64_t part);

  // Adds factor * mixtures(b, 0, n, i) * weight of query i to series n, for all heads.
  void AddMixtures(const ScoreTile& tile, int64_t part, const TensorView<const float>& mixtures,
                   int64_t first, float factor);

  // Totals over the parts, in their order.
  double OfHead(int64_t b, int64_t h, int64_t key) const;
  // Of each head, to [batch, num_heads, kv_len, 1].
  void Write(TensorView<float> sums) const;
  double OfMixture(int64_t b, int64_t series, int64_t key) const;

 private:
  double* Sums(int64_t part, int64_t series);
  double Total(int64_t unit, int64_t series, int64_t key) const;
  void Add(const ScoreTile& tile, size_t first, size_t step, const float* factors, double* to);

  const AttentionProblem& p_;
  int64_t parts_;
  int64_t series_;
  int64_t stride_;            // keys, rounded up to tiles
  std::vector<double> sums_;  // [unit][part][series][stride]
};

}  // namespace heed

#endif  // HEED_SRC_ANALYSIS_COLUMN_TOTALS_H_
