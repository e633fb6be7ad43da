// Sums over tensors [batch, heads, len, dim] that gradients of compositions consist of.
#ifndef HEED_SRC_COMPOSE_BACKWARD_ROWS_H_
#define HEED_SRC_COMPOSE_BACKWARD_ROWS_H_

#include "heed/tensor.h"
#include "heed/thread_pool.h"

namespace heed {

// to = from, summed over the extents that are 1 in `to` alone, in float64 and in ascending order.
// An absent `to` is not written.
void SumOver(const TensorView<const float>& from, const TensorView<float>& to, ThreadPool& pool);

// to += from, to = 0: shapes agree.
void AddRows(const TensorView<const float>& from, const TensorView<float>& to, ThreadPool& pool);
void ClearRows(const TensorView<float>& to, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_BACKWARD_ROWS_H_
