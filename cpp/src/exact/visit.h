// A pass that hands the final weights of all visible pairs to a visitor, a score tile at a time:
// what every statistic of the weights is made of, without the matrix.
#ifndef HEED_SRC_EXACT_VISIT_H_
#define HEED_SRC_EXACT_VISIT_H_

#include <cstdint>

#include "heed/thread_pool.h"
#include "src/exact/problem.h"
#include "src/exact/tile.h"

namespace heed {

// Sees each score tile once its scores have become final weights: columns [tile.first, tile.last)
// of its rows; those at or beyond tile.num_keys are padding. Pairs that are never shown have
// weight 0. A row's tiles come in ascending order of keys, one after the other.
class WeightVisitor {
 public:
  virtual ~WeightVisitor() = default;
  // `part` numbers the runs of rows that one thread works through in order; see WeightVisit.
  virtual void Visit(const ScoreTile& tile, int64_t part) = 0;
};

// Which pairs to show, and to whom.
struct WeightVisit {
  WeightVisitor* visitor = nullptr;
  KeyRange queries;  // [begin, end) of q_len
  KeyRange keys;     // [begin, end) of kv_len; shown tiles may reach beyond
  // The rows' log denominators, [batch, num_heads, q_len, 1]: spares the pass that finds them.
  TensorView<const float> lse{};
  // Rows of a unit (batch entry and KV head) are split into so many parts, in order. A visitor that
  // adds over rows keeps one sum a part, so that results do not depend on threads. `part` is
  // unit * parts + part of the unit.
  int64_t parts = 1;
};

// Runs the pass; writes the problem's outputs too, as far as they have values. Needs no values: v
// may have head_dim_v = 0. Throws Error(kMemory).
void VisitWeights(const AttentionProblem& problem, const WeightVisit& visit, ThreadPool* pool);

}  // namespace heed

#endif  // HEED_SRC_EXACT_VISIT_H_
