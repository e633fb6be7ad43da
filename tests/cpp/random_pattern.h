// Random keep patterns for a case.
#ifndef HEED_TESTS_RANDOM_PATTERN_H_
#define HEED_TESTS_RANDOM_PATTERN_H_

#include <cstdint>

#include "attention_case.h"
#include "random.h"

namespace heed::testing {

// Adds one to three of: a named pattern, a list of blocks or pairs, documents, prefix lengths.
// Patterns that know only the tokens of the keys replace the case's query offset.
void AddRandomPatterns(AttentionCase& c, Random& random);

// A small problem with random keep rules of every kind.
AttentionCase RandomKeepCase(uint64_t seed);

}  // namespace heed::testing

#endif  // HEED_TESTS_RANDOM_PATTERN_H_
