// What Reformer does both ways: hashing, and keys that are the directions of queries.
#ifndef HEED_SRC_SELECTIVE_REFORMER_H_
#define HEED_SRC_SELECTIVE_REFORMER_H_

#include <cstdint>

#include "heed/selective.h"
#include "heed/thread_pool.h"
#include "src/exact/problem.h"
#include "src/selective/bucket_keep.h"

namespace heed {

// All rounds. In a dry run one bucket holds all tokens.
Hashing HashAll(const ReformerOptions& options, const AttentionProblem& p,
                const TensorView<const float>& q, ThreadPool& pool);

// to = from / |from|, 0 where that is 0. Returns |from|.
double CopyUnit(const float* from, int64_t width, float* to);

// The options of attention within a round.
AttentionOptions InnerOptions(const ReformerOptions& options);

// What tells heads and lengths of keys, which are the queries once more.
TensorView<const float> KeyShape(TensorView<const float> q, const TensorView<const float>& v);

}  // namespace heed

#endif  // HEED_SRC_SELECTIVE_REFORMER_H_
