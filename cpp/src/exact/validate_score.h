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

// Calls visit(name, memory) for all that the options have the kernels read.
template <class Visit>
void ForEachSpan(const AttentionOptions& o, const Visit& visit) {
  if (o.bias.has_value()) visit("bias", SpanOf(o.bias));
  if (o.keep.has_value()) visit("keep", SpanOf(o.keep));
  if (o.cope_table.has_value()) visit("cope_table", SpanOf(o.cope_table));
  for (const NamedView& tensor : ScoreTensors(o)) {
    if (tensor.view->has_value()) visit(tensor.name, SpanOf(*tensor.view));
  }
  const auto vector = [&](const char* name, const auto& values) {
    if (!values.empty()) visit(name, SpanOf(values));
  };
  vector("width", o.width);
  vector("temperature", o.temperature);
  vector("score_bias", o.score_bias);
  vector("alibi_slopes", o.alibi_slopes);
  vector("sinks", o.sinks);
  vector("key_lengths", o.key_lengths);
  vector("prefix_lengths", o.prefix_lengths);
  vector("query_documents", o.query_documents);
  vector("key_documents", o.key_documents);
}

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
