// What all analysis shares: a problem of exact attention without values, and passes over it.
#ifndef HEED_SRC_ANALYSIS_WEIGHTS_PROBLEM_H_
#define HEED_SRC_ANALYSIS_WEIGHTS_PROBLEM_H_

#include <functional>
#include <string>
#include <vector>

#include "heed/analysis.h"
#include "src/exact/problem.h"
#include "src/exact/visit.h"
#include "src/output_spans.h"

namespace heed {

// Validates q, k and the options as Attention() does, with values of head_dim_v 0.
AttentionProblem ValidateWeights(const StoredTensor& q, const StoredTensor& k,
                                 const AttentionOptions& options, bool wants_lse);

// Checks a given lse, [batch, num_heads, q_len, 1]; absent is fine.
void CheckGivenLse(const AttentionProblem& p, TensorView<const float> lse);

// Checks an output of either element type; absent is fine.
void CheckAnalysisOutput(std::string_view name, TensorView<float> output, const Extents& expected,
                         std::string_view meaning);

// Checks that outputs share no memory with what the problem reads.
void CheckApart(const OutputSpans& outputs, const AttentionProblem& p);
TensorView<float> AsFloats(const TensorView<int32_t>& view);

// Refuses a range that does not lie within the queries and keys.
void CheckRange(const AttentionProblem& p, const WeightsRange& range);

// A contiguous view of new memory.
TensorView<float> Allocate(std::vector<float>& memory, const Extents& shape);

// v as floats: itself, or a copy.
TensorView<const float> FloatValues(const StoredTensor& v, std::vector<float>& memory);

// Refuses operations that apply the weights to the tokens that they come from.
void CheckSquare(const AttentionProblem& p, std::string_view what);

// How many parts the rows of each unit are split into: about 32 in all, whatever the machine.
int64_t NumParts(const AttentionProblem& p);

// Writes zeros; an absent view stays so.
void Clear(const TensorView<float>& view);

// Writes weights [batch, num_heads, queries, keys] of a range of pairs.
void WriteWeights(const AttentionProblem& p, const WeightsRange& range, TensorView<const float> lse,
                  TensorView<float> weights, ThreadPool* pool);

// The pool to use.
ThreadPool& PoolOrDefault(ThreadPool* pool);

}  // namespace heed

#endif  // HEED_SRC_ANALYSIS_WEIGHTS_PROBLEM_H_
