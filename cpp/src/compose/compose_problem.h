// The boundaries of composed mechanisms, where both the typed functions and requests check.
#ifndef HEED_SRC_COMPOSE_COMPOSE_PROBLEM_H_
#define HEED_SRC_COMPOSE_COMPOSE_PROBLEM_H_

#include <string>

#include "heed/compose.h"
#include "src/exact/problem.h"

namespace heed {

// ValidateAttention for compositions, which compute in float32 and write `output` only.
AttentionProblem ValidateComposed(const TensorView<const float>& q,
                                  const TensorView<const float>& k,
                                  const TensorView<const float>& v, const AttentionOptions& options,
                                  const AttentionOutputs& outputs);

// The two halves of a last dimension. Throws Error(kShape) when it is odd.
struct Halves {
  TensorView<const float> first;
  TensorView<const float> second;
};
Halves Halved(const std::string& name, const TensorView<const float>& both);

// Check what a mechanism adds to the options of attention, which Attention() checks itself.
void ValidateDifferential(const TensorView<const float>& q, const TensorView<const float>& k,
                          const TensorView<const float>& v, const DifferentialOptions& options,
                          const AttentionOutputs& outputs);
void ValidateTalkingHeads(const TalkingHeadsOptions& options, const AttentionOutputs& outputs,
                          int64_t num_heads);
void ValidateHopfield(const HopfieldOptions& options, const AttentionOutputs& outputs);

// The gate with strides of 0 where it broadcasts to the output's shape.
TensorView<const float> BroadcastGate(const TensorView<const float>& gate, const Extents& output);

// Learned queries [1, num_heads, num_queries, head_dim], seen by every batch entry.
TensorView<const float> QueriesOfBatch(TensorView<const float> queries, int64_t batch);

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_COMPOSE_PROBLEM_H_
