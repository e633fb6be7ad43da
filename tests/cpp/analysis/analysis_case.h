// Problems and bounds that the tests of analysis share.
#ifndef HEED_TESTS_ANALYSIS_CASE_H_
#define HEED_TESTS_ANALYSIS_CASE_H_

#include <string>
#include <vector>

#include "attention_accuracy.h"
#include "attention_case.h"
#include "heed/analysis.h"
#include "reference/analysis.h"

namespace heed::testing {

// Cases that together use every kind of option: groups, masks, biases, sinks, distances.
std::vector<AttentionCase> AnalysisCases();

// Bound of a weight of each row, from its logits.
std::vector<RowBound> BoundsOf(const AttentionCase& c);

}  // namespace heed::testing

#endif  // HEED_TESTS_ANALYSIS_CASE_H_
