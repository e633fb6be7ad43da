// Steps of Nystrom attention that forward and backward share.
#ifndef HEED_SRC_LOW_RANK_NYSTROM_STEPS_H_
#define HEED_SRC_LOW_RANK_NYSTROM_STEPS_H_

#include "heed/tensor.h"
#include "heed/thread_pool.h"

namespace heed {

// Means of segments of the first `len` rows; heads of `to` share those of `rows`.
void MeansOfSegments(const TensorView<const float>& rows, int64_t len, const TensorView<float>& to,
                     ThreadPool& pool);

// to = diagonal * identity - matrix; both may be the same.
void SubtractFrom(float diagonal, const TensorView<float>& matrix, const TensorView<float>& to,
                  ThreadPool& pool);

// z = a^T over the largest sums of a row and of a column of |a|.
void StartInverse(const TensorView<float>& a, const TensorView<float>& z, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_LOW_RANK_NYSTROM_STEPS_H_
