// The boundary of the low-rank family, shared by typed functions and requests.
#ifndef HEED_SRC_LOW_RANK_PROBLEM_H_
#define HEED_SRC_LOW_RANK_PROBLEM_H_

#include <optional>
#include <span>
#include <string_view>

#include "heed/low_rank.h"
#include "src/exact/problem.h"
#include "src/parallel/dry_run.h"
#include "src/view_checks.h"

namespace heed {

// ValidateAttentionInputs() where lengths are [batch].
AttentionProblem ValidateLowRank(const TensorView<const float>& q, const TensorView<const float>& k,
                                 const TensorView<const float>& v, const AttentionOptions& options);

// Refuses scores, and results that lie where an input is.
struct NamedSpan {
  std::string_view name;
  ViewSpan span;
};
void CheckLowRankOutputs(const AttentionOutputs& outputs, std::initializer_list<NamedSpan> inputs);

// Stands for a tensor that is yet to be computed, where shapes are checked.
inline TensorView<const float> Planned(const Extents& shape) {
  static constexpr float kNothing = 0;
  return {&kNothing, shape, {0, 0, 0, 1}};
}

// One batch entry, and rows [first, first + count) of a view.
template <class T>
TensorView<T> EntryOf(TensorView<T> view, int64_t b) {
  view.data += b * view.strides[0];
  view.shape[0] = 1;
  return view;
}
template <class T>
TensorView<T> RowsOf(TensorView<T> view, int64_t first, int64_t count) {
  view.data += first * view.strides[2];
  view.shape[2] = count;
  return view;
}

struct LinformerProblem {
  TensorView<const float> key_projection, value_projection;  // their first kv_len columns
  ScratchVector<int32_t> seen;  // projected keys that a batch entry has: all or none
  AttentionOptions over_projected;
  Extents k, v;  // the shapes of what is projected
};
LinformerProblem ValidateLinformer(const TensorView<const float>& q,
                                   const TensorView<const float>& k,
                                   const TensorView<const float>& v,
                                   const LinformerOptions& options);

// The lengths as options of attention over the tokens.
AttentionOptions ValidateEfficient(const TensorView<const float>& q,
                                   const TensorView<const float>& k,
                                   const TensorView<const float>& v,
                                   const EfficientOptions& options);

struct NystromProblem {
  AttentionProblem tokens;
  int64_t num_landmarks;  // at most the tokens; fewer in sequences that are shorter
};
NystromProblem ValidateNystrom(const TensorView<const float>& q, const TensorView<const float>& k,
                               const TensorView<const float>& v, const NystromOptions& options);

struct MemoryCompressedProblem {
  int64_t compression;
  ScratchVector<int32_t> seen;  // blocks that an entry, or each of its queries, sees
  AttentionOptions over_blocks;
  Extents k, v;  // the shapes of what is compressed
};
MemoryCompressedProblem ValidateMemoryCompressed(const TensorView<const float>& q,
                                                 const TensorView<const float>& k,
                                                 const TensorView<const float>& v,
                                                 const MemoryCompressedOptions& options);

}  // namespace heed

#endif  // HEED_SRC_LOW_RANK_PROBLEM_H_
