// Where the results of a recurrent call may lie.
#ifndef HEED_SRC_RECURRENT_RESULTS_H_
#define HEED_SRC_RECURRENT_RESULTS_H_

#include "heed/tensor.h"
#include "src/recurrent/problem.h"
#include "src/view_checks.h"

namespace heed {

// The memory of q, k and v, of any element type.
struct RecurrentRows {
  ViewSpan q, k, v;
};

// The output and the state (unless it is absent) have their shapes and overlap nothing, but that
// the state may be the initial state. Of p.q, p.k and p.v only shapes are looked at. Throws Error.
void CheckRecurrentResults(const RecurrentProblem& p, const RecurrentRows& rows,
                           const StoredOutput& output, const TensorView<float>& final_state);

}  // namespace heed

#endif  // HEED_SRC_RECURRENT_RESULTS_H_
