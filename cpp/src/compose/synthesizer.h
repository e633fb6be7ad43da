// What forward and backward of dense synthesizers share.
#ifndef HEED_SRC_COMPOSE_SYNTHESIZER_H_
#define HEED_SRC_COMPOSE_SYNTHESIZER_H_

#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"

namespace heed {

// Queries relu(hidden) with a last column of 1, and keys with the bias as last column.
class DenseRows {
 public:
  DenseRows(const SynthesizerProblem& problem, ThreadPool& pool);
  TensorView<const float> queries() const { return queries_.view(); }
  TensorView<const float> keys() const;  // the same for all batch entries

 private:
  OwnedTensor queries_, keys_;
};

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_SYNTHESIZER_H_
