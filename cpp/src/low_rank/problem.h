// The boundary of the low-rank family, shared by typed functions and requests.
#ifndef HEED_SRC_LOW_RANK_PROBLEM_H_
#define HEED_SRC_LOW_RANK_PROBLEM_H_

#include <optional>
#include <span>
#include <string_view>

#include "heed/low_rank.h"
#include "src/exact/attention_spans.h"
#include "src/exact/problem.h"
#include "src/parallel/dry_run.h"

namespace heed {

// ValidateAttentionInputs() where lengths are [batch].
AttentionProblem ValidateLowRank(const TensorView<const float>& q, const TensorView<const float>& k,
                                 const TensorView<const float>& v, const AttentionOptions& options);

// All that is read, by the names of the fields: a new one does not compile until it stands here.
template <class Visit>
void ForEachView(const LinformerOptions& options, const Visit& visit) {
  const auto& [key_projection, value_projection, scale, key_lengths] = options;
  visit("key_projection", key_projection);
  visit("value_projection", value_projection);
  visit("key_lengths", key_lengths);
}
template <class Visit>
void ForEachView(const NystromOptions& options, const Visit& visit) {
  const auto& [num_landmarks, iterations, scale, key_lengths, depthwise_conv] = options;
  visit("key_lengths", key_lengths);
  visit("depthwise_conv", depthwise_conv);
}
template <class Visit>
void ForEachView(const MemoryCompressedOptions& options, const Visit& visit) {
  const auto& [compression, key_conv, value_conv, key_conv_bias, value_conv_bias, scale, sinks,
               causal, query_offset, key_lengths] = options;
  visit("key_conv", key_conv);
  visit("value_conv", value_conv);
  visit("key_conv_bias", key_conv_bias);
  visit("value_conv_bias", value_conv_bias);
  visit("sinks", sinks);
  visit("key_lengths", key_lengths);
}

// Refuses scores.
void CheckNoScores(const AttentionOutputs& outputs);

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

// Head `member` of every group of query heads.
template <class T>
TensorView<T> MembersOf(TensorView<T> view, int64_t member, int64_t group) {
  view.data += member * view.strides[1];
  view.shape[1] /= group;
  view.strides[1] *= group;
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

// The rows of a projection times the tokens of each batch entry within its length.
void ProjectTokens(const TensorView<const float>& projection, const TensorView<const float>& rows,
                   std::span<const int32_t> lengths, const TensorView<float>& to, ThreadPool* pool);

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

// The same, and the results that are asked for.
NystromProblem ValidateNystromCall(const TensorView<const float>& q,
                                   const TensorView<const float>& k,
                                   const TensorView<const float>& v, const NystromOptions& options,
                                   const NystromOutputs& outputs);

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

// A convolution as it was given, with the names that errors use; without weights blocks are means.
struct BlockConvolution {
  std::string_view name, bias_name;
  const TensorView<const float>& weights;
  std::span<const float> bias;
};
BlockConvolution KeyConvolution(const MemoryCompressedOptions& o);
BlockConvolution ValueConvolution(const MemoryCompressedOptions& o);
// The options of attention over the tokens, whose lengths they are.
AttentionOptions OverTokens(const MemoryCompressedOptions& o);
// Blocks of tokens as keys or values.
void CompressTokens(const BlockConvolution& c, const TensorView<const float>& tokens,
                    const AttentionProblem& p, int64_t compression, const TensorView<float>& to,
                    ThreadPool& pool);
// Tokens of a block side by side, in the order of a row of weights: [dim][compression].
void GatherBlocks(const TensorView<const float>& tokens, const AttentionProblem& p,
                  int64_t compression, const TensorView<float>& to, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_LOW_RANK_PROBLEM_H_
