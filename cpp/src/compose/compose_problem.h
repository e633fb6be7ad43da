// The boundaries of composed mechanisms, where both the typed functions and requests check.
#ifndef HEED_SRC_COMPOSE_COMPOSE_PROBLEM_H_
#define HEED_SRC_COMPOSE_COMPOSE_PROBLEM_H_

#include <string_view>
#include <vector>

#include "heed/compose.h"
#include "src/exact/problem.h"
#include "src/parallel/dry_run.h"

namespace heed {

// ValidateAttention for compositions, which compute in float32 and write `output` only.
AttentionProblem ValidateComposed(const TensorView<const float>& q,
                                  const TensorView<const float>& k,
                                  const TensorView<const float>& v, const AttentionOptions& options,
                                  const AttentionOutputs& outputs);

// Throws Error(kUnsupported) where stored_output is given, which Attention() alone writes.
void RefuseStoredOutput(const AttentionOutputs& outputs);
// Throws Error(kUnsupported) where tables of vectors, as wide as a query or a value, are given:
// relative_keys, relative_queries, relative_values, content_bias, position_bias, cope_table.
void RefuseOtherWidths(const AttentionOptions& options, std::string_view who, std::string_view why);
// Throws Error(kUnsupported) where running_max, running_sum or rescale is given: what `who`
// computes is not one softmax from tile to tile.
void RefuseTiles(const AttentionOutputs& outputs, std::string_view who);

// The two halves of a last dimension. Throws Error(kShape) when it is odd.
struct Halves {
  TensorView<const float> first;
  TensorView<const float> second;
};
Halves Halved(std::string_view name, const TensorView<const float>& both);

// Check what a mechanism adds to the options of attention, which Attention() checks itself.
void ValidateDifferential(const TensorView<const float>& q, const TensorView<const float>& k,
                          const TensorView<const float>& v, const DifferentialOptions& options,
                          const AttentionOutputs& outputs);
void ValidateTalkingHeads(const TalkingHeadsOptions& options, const AttentionOutputs& outputs,
                          int64_t num_heads);
void ValidateHopfield(const HopfieldOptions& options, const AttentionOutputs& outputs,
                      int64_t head_dim, int64_t head_dim_k);

// The gate with strides of 0 where it broadcasts to the output's shape.
TensorView<const float> BroadcastGate(const TensorView<const float>& gate, const Extents& output);

// Learned queries [1, num_heads, num_queries, head_dim], seen by every batch entry.
TensorView<const float> QueriesOfBatch(TensorView<const float> queries, int64_t batch);

// External memory as every batch entry and head sees it, and the options of the call whose keys are
// the units; its bias is still to be computed.
struct ExternalProblem {
  TensorView<const float> memory_k, memory_v;
  ScratchVector<int32_t> seen;  // units that each token sees; empty = all
  AttentionOptions over_units;
};
ExternalProblem ValidateExternal(const TensorView<const float>& q,
                                 const TensorView<const float>& memory_k,
                                 const TensorView<const float>& memory_v,
                                 const ExternalOptions& options, const AttentionOutputs& outputs);

// A synthesizer as a call of Attention(), but for the ReLU and the bias of the dense one.
struct SynthesizerProblem {
  TensorView<const float> q, k, v;
  TensorView<const float> row_bias;  // [batch, num_heads, 1, kv_len] or absent
  AttentionOptions options;
};
SynthesizerProblem ValidateDenseSynthesizer(const TensorView<const float>& hidden,
                                            const TensorView<const float>& weight,
                                            const TensorView<const float>& bias,
                                            const TensorView<const float>& v,
                                            const AttentionOptions& options);
SynthesizerProblem ValidateRandomSynthesizer(const TensorView<const float>& scores,
                                             const TensorView<const float>& v, int64_t q_len,
                                             const AttentionOptions& options);

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_COMPOSE_PROBLEM_H_
