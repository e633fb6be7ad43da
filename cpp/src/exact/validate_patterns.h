// The boundary of the keep patterns (heed/keep.h).
#ifndef HEED_SRC_EXACT_VALIDATE_PATTERNS_H_
#define HEED_SRC_EXACT_VALIDATE_PATTERNS_H_

#include "src/exact/problem.h"

namespace heed {

// The name of an option whose rule reads positions, or nullptr.
const char* PatternOfPositions(const AttentionOptions& o);

// Checks the patterns, prefix lengths and documents; positions are known. Throws Error.
void CheckPatterns(AttentionProblem& p);

}  // namespace heed

#endif  // HEED_SRC_EXACT_VALIDATE_PATTERNS_H_
