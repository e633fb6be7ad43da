// The boundaries of selective mechanisms, where both the typed functions and requests check.
#ifndef HEED_SRC_SELECTIVE_SELECTIVE_PROBLEM_H_
#define HEED_SRC_SELECTIVE_SELECTIVE_PROBLEM_H_

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "heed/cache_policy.h"
#include "heed/selective.h"
#include "src/exact/problem.h"

namespace heed {

// Tokens are counted in 32 bits where they are listed.
inline constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

// Refuses the options of attention that no choice can look at.
void CheckKeepRules(const AttentionOptions& options);
// The same, and lengths per query.
void CheckChoosable(const AttentionOptions& options, int64_t batch);

// One length for each batch entry, or none.
void CheckLengthsOfBatch(std::span<const int32_t> key_lengths, int64_t batch);

// A count in [1, most].
void CheckCount(std::string_view name, int64_t value, int64_t most = int64_t{1} << 53);

void ValidateBlockMixture(const BlockMixtureOptions& options, int64_t batch);

// Returns the options with hash_buckets filled in.
ReformerOptions ValidateReformer(const TensorView<const float>& q, const TensorView<const float>& v,
                                 const ReformerOptions& options);

void ValidateNativeSparse(const TensorView<const float>& q, const TensorView<const float>& k,
                          const TensorView<const float>& v,
                          const TensorView<const float>& branch_gates,
                          const NativeSparseOptions& options);

// The options of attention inside, causal.
AttentionOptions ValidateStreaming(const StreamingOptions& options, int64_t batch);
AttentionOptions ValidateQuest(const QuestOptions& options, int64_t batch);
void ValidateIndexed(const TensorView<const float>& q, const TensorView<const float>& k,
                     const IndexTensors& index, const IndexedOptions& options);
AttentionOptions ValidateHeavyHitter(const TensorView<const float>& q,
                                     const TensorView<const float>& k,
                                     const TensorView<const float>& v,
                                     const HeavyHitterOptions& options);

// Make p, a valid call of attention with the mechanism's tensors, see what forward chooses.
void KeepBlockMixture(const TensorView<const float>& q, const TensorView<const float>& k,
                      const BlockMixtureOptions& options, AttentionProblem& p, ThreadPool* pool);
void KeepQuest(const TensorView<const float>& q, const TensorView<const float>& k,
               const QuestOptions& options, AttentionProblem& p, ThreadPool* pool);
void KeepIndexed(const IndexTensors& index, const IndexedOptions& options, AttentionProblem& p,
                 ThreadPool* pool);
void KeepHeavyHitters(const TensorView<const float>& q, const TensorView<const float>& k,
                      const TensorView<const float>& v, const HeavyHitterOptions& options,
                      AttentionProblem& p, ThreadPool* pool);

// Returns the options with cluster_tokens filled in.
RoutingOptions ValidateRouting(const TensorView<const float>& q, const TensorView<const float>& k,
                               const TensorView<const float>& v, const RoutingOptions& options);

void ValidateSinkhorn(const TensorView<const float>& q, const TensorView<const float>& k,
                      const TensorView<const float>& v, const SinkhornOptions& options);

}  // namespace heed

#endif  // HEED_SRC_SELECTIVE_SELECTIVE_PROBLEM_H_
