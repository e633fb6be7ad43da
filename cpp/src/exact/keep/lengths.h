// Keep plug: key lengths. Keys at or beyond the length are never read.
#ifndef HEED_SRC_EXACT_KEEP_LENGTHS_H_
#define HEED_SRC_EXACT_KEEP_LENGTHS_H_

#include "src/exact/problem.h"

namespace heed {

inline KeyRange LengthKeys(const AttentionProblem& p, int64_t batch, int64_t query) {
  return {0, p.KeyLength(batch, query)};
}

}  // namespace heed

#endif  // HEED_SRC_EXACT_KEEP_LENGTHS_H_
