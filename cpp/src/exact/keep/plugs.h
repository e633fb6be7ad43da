// Which keep plugs work cell by cell for one problem.
#ifndef HEED_SRC_EXACT_KEEP_PLUGS_H_
#define HEED_SRC_EXACT_KEEP_PLUGS_H_

#include <memory>
#include <vector>

#include "src/exact/keep/keep.h"
#include "src/exact/problem.h"

namespace heed {

// Range plugs live in the rows (range.h). May throw std::bad_alloc.
KeepPlugs MakeKeepPlugs(const AttentionProblem& p);

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_PLUGS_H_
