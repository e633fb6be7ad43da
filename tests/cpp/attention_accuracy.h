// Measures exact attention against the float64 oracle.
#ifndef HEED_TESTS_ATTENTION_ACCURACY_H_
#define HEED_TESTS_ATTENTION_ACCURACY_H_

#include <span>
#include <string>
#include <vector>

#include "attention_case.h"
#include "request_builder.h"

namespace heed::testing {

// The oracle's answer to a case: output, weights, scores ("biased"), and lse where there is one.
Values RunOracle(const AttentionCase& c);

// The largest error that a row may have: kAttentionMaxError, in proportion to the sizes below.
struct RowBound {
  double max_v = 0;      // max |v| over the keys the row sees
  double max_logit = 0;  // max over those keys of sum |scale q k| + |bias| + |ALiBi|
  double condition = 1;  // what the normaliser multiplies errors of scores by (docs/accuracy.md)

  double Output() const;
  double Weight() const;
  double Score() const;
  double Lse(double lse) const;
};

// One bound for each row of [batch, num_heads, q_len].
std::vector<RowBound> RowBounds(const AttentionCase& c, const Values& expected);

// Non-finite numbers must be of the same class; others may differ by bounds[n / row_len]. A failure
// reports the worst element and its error.
void ExpectWithin(std::span<const float> actual, std::span<const double> expected,
                  std::span<const double> bounds, const std::string& what);

// Compares whatever `results` has with the oracle.
void ExpectResultsMatch(const AttentionCase& c, const Results& results, const Values& expected);

// The same with bounds that are known already.
void ExpectResultsMatch(const AttentionCase& c, const Results& results, const Values& expected,
                        const std::vector<RowBound>& rows);

// Runs the case once for output and lse alone (never stored scores) and once with weights and
// scores, and compares everything with the oracle.
void ExpectMatchesReference(const AttentionCase& c);

}  // namespace heed::testing

#endif  // HEED_TESTS_ATTENTION_ACCURACY_H_
