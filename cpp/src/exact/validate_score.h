// The part of the boundary that concerns scores: which tensors a score needs, and its defaults.
#ifndef HEED_SRC_EXACT_VALIDATE_SCORE_H_
#define HEED_SRC_EXACT_VALIDATE_SCORE_H_

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "src/exact/problem.h"
#include "src/view_checks.h"

namespace heed {

// Scores that take keys of another width than the queries.
inline bool JoinsWidths(Score score) {
  return score == Score::kBilinear || score == Score::kAdditive;
}

// A float tensor among the options.
struct NamedView {
  const char* name;
  const TensorView<const float>* view;
};

// The tensors that scores read, absent ones included.
inline constexpr size_t kScoreTensors = 12;
std::array<NamedView, kScoreTensors> ScoreTensors(const AttentionOptions& options);

// Checks the score and everything that only scores read, and fills in their defaults. The shapes of
// q, k and v are known.
void CheckScore(AttentionProblem& p);

// Checks distance_bias, bucket_bias and log_gates.
void CheckDistanceBiases(AttentionProblem& p);

// Checks the values of log_gates, as far as they are read. Lengths are checked already.
void CheckGates(const AttentionProblem& p);

// The name of an option that depends on positions, or nullptr when there is none.
const char* PositionalOption(const AttentionOptions& options);

// One finite value per query head, or none; -inf too where `minus_inf_allowed`.
void CheckHeadVector(const AttentionProblem& p, std::string_view name,
                     std::span<const float> values, bool minus_inf_allowed);

}  // namespace heed

#endif  // HEED_SRC_EXACT_VALIDATE_SCORE_H_
