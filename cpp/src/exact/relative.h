// Which row of a relative table belongs to which distance between key and query.
#ifndef HEED_SRC_EXACT_RELATIVE_H_
#define HEED_SRC_EXACT_RELATIVE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/exact/problem.h"

namespace heed {

// The row of a table with `num_rows` rows for a distance, key minus query.
int64_t RelativeRow(RelativeRows kind, int64_t num_rows, int64_t max_distance, int64_t distance);

// The rows of all distances, spread out so that the loop reads them as vectors. Tables are packed
// so that rows ascend with the distance: `reversed` says that this is last row first.
class RelativeIndex {
 public:
  // Distances on both sides, beyond those that have a row of their own, that a vector may reach.
  static constexpr int64_t kMargin = 64;

  explicit RelativeIndex(const AttentionProblem& p);

  bool reversed() const { return reversed_; }
  int64_t num_rows() const { return num_rows_; }

  // Packed rows of the distances from `distance` on, as many as kMargin; right for any distance.
  const int32_t* From(int64_t distance) const {
    return rows_.data() + std::clamp(distance + reach_, -kMargin, 2 * reach_ + kMargin) + kMargin;
  }
  int64_t Row(int64_t distance) const { return *From(distance); }

 private:
  bool reversed_;
  int64_t num_rows_;
  int64_t reach_;  // rows stay the same beyond this distance, or no pair is farther apart
  std::vector<int32_t> rows_;
};

}  // namespace heed

#endif  // HEED_SRC_EXACT_RELATIVE_H_
