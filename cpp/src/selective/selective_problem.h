// The boundaries of selective mechanisms, where both the typed functions and requests check.
#ifndef HEED_SRC_SELECTIVE_SELECTIVE_PROBLEM_H_
#define HEED_SRC_SELECTIVE_SELECTIVE_PROBLEM_H_

#include <string_view>

#include "heed/selective.h"
#include "src/exact/problem.h"

namespace heed {

// Refuses the options of attention that no choice can look at.
void CheckChoosable(const AttentionOptions& options, int64_t batch);

// A count that is at least 1.
void CheckCount(std::string_view name, int64_t value);

void ValidateBlockMixture(const BlockMixtureOptions& options, int64_t batch);

}  // namespace heed

#endif  // HEED_SRC_SELECTIVE_SELECTIVE_PROBLEM_H_
