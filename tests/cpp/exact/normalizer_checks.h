// What every normaliser is held to, whatever it computes.
#ifndef HEED_TESTS_EXACT_NORMALIZER_CHECKS_H_
#define HEED_TESTS_EXACT_NORMALIZER_CHECKS_H_

#include <vector>

#include "attention_case.h"
#include "request_builder.h"

namespace heed::testing {

// 2 x 4/2 heads, 33 x 300: two tiles, several groups of rows. With a table for cope; exact scores
// for those that choose keys.
AttentionCase NormalizerCase(Normalize normalize, int64_t q_len = 33, int64_t kv_len = 300,
                             int64_t head_dim = 16);

// Against the oracle for many shapes: one row, few rows, many rows; one key to many tiles; strides.
void ExpectEveryShapeMatchesReference(Normalize normalize);

// Rows without a key: output 0, weights 0, lse -inf where there is one.
void ExpectEmptyRowsAreZero(Normalize normalize);

// NaN and infinities in hidden keys and values change no bit.
void ExpectHiddenPoisonDoesNotMatter(Normalize normalize);

// NaN in one visible key reaches the rows that see it, as in the oracle, and no other.
void ExpectVisiblePoisonStaysInItsRows(Normalize normalize);

// All of the above.
void ExpectSoundNormalizer(Normalize normalize);

// One query whose scores are `scores`, and values whose output is the weights.
RequestBuilder RowOfScores(const std::string& id, const std::vector<float>& scores);

// The weights of such a row, which its output must equal.
std::vector<double> WeightsOf(const RequestBuilder& builder);

}  // namespace heed::testing

#endif  // HEED_TESTS_EXACT_NORMALIZER_CHECKS_H_
