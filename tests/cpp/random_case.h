// Random problems of exact attention, for tests that any combination of options works.
#ifndef HEED_TESTS_RANDOM_CASE_H_
#define HEED_TESTS_RANDOM_CASE_H_

#include <cstdint>

#include "attention_case.h"
#include "random.h"

namespace heed::testing {

Sizes RandomSizes(Random& random);
Layout RandomLayout(Random& random);

// Keep rules of every kind.
void AddKeepRules(AttentionCase& c, Random& random);

// A dot product with any of the keep rules, modifiers, dropout and prob_mod.
AttentionCase RandomCase(uint64_t seed);

// Sets one of the scores other than the dot product, with all that it reads.
void AddScore(AttentionCase& c, Random& random);

// Distances need positions.
void FixOffset(AttentionCase& c);

// What depends on distances; `dot` says that the score is a dot product.
void AddDistances(AttentionCase& c, Random& random, bool dot);

// Sets the normaliser with all that it reads, and takes out what it refuses.
void AddNormalizer(AttentionCase& c, Normalize normalize, Random& random);

}  // namespace heed::testing

#endif  // HEED_TESTS_RANDOM_CASE_H_
