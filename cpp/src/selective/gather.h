// Attention to chosen blocks by way of the blocks: the queries that chose one are gathered, attend
// to it together, and the parts of a query are merged. Time follows the choices, however much
// neighbouring queries differ in theirs.
#ifndef HEED_SRC_SELECTIVE_GATHER_H_
#define HEED_SRC_SELECTIVE_GATHER_H_

#include "heed/thread_pool.h"
#include "src/exact/keep/block_list.h"
#include "src/exact/problem.h"

namespace heed {

// Whether gathering does for the problem, and pays: blocks wide enough to attend to by themselves,
// plain softmax of dot products, and neither weights nor scores asked for.
bool CanGather(const AttentionProblem& p, const BlockRows& chosen);

// `chosen` has a row for each query (q_block 1) and lists for each batch entry. Allocates rows for
// a slice of the queries at a time: as many as the blocks need to be met by whole groups of rows.
// Throws Error(kMemory), std::bad_alloc.
void AttendGathered(const AttentionProblem& p, const BlockRows& chosen, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_SELECTIVE_GATHER_H_
