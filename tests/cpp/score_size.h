// How large the terms are that a score is summed from: what its rounding errors grow with.
#ifndef HEED_TESTS_SCORE_SIZE_H_
#define HEED_TESTS_SCORE_SIZE_H_

#include "attention_case.h"

namespace heed::testing {

// The largest absolute value of a tensor.
double LargestOf(const Buffer<float>& buffer);

// The sum of the absolute values of the terms of the score of a pair, bias and ALiBi included.
double ScoreSize(const AttentionCase& c, int64_t b, int64_t h, int64_t i, int64_t j);

}  // namespace heed::testing

#endif  // HEED_TESTS_SCORE_SIZE_H_
