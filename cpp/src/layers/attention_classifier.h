// The classifier after validation.
#ifndef HEED_SRC_LAYERS_ATTENTION_CLASSIFIER_H_
#define HEED_SRC_LAYERS_ATTENTION_CLASSIFIER_H_

#include <cstdint>
#include <span>

#include "heed/layers.h"
#include "src/layers/multi_head.h"

namespace heed {

// All weights by the names of the fields: a new one does not compile until it stands here.
template <class Visit>
void ForEachView(const AttentionClassifierWeights& weights, const Visit& visit) {
  const auto& [embedding, position_table, attention, pool_query, w_class, b_class] = weights;
  visit("embedding", embedding);
  visit("position_table", position_table);
  ForEachView(attention, visit);
  visit("pool_query", pool_query);
  visit("w_class", w_class);
  visit("b_class", b_class);
}

// Checks everything but the output; throws Error.
void ValidateAttentionClassifier(TensorView<const int32_t> tokens,
                                 const AttentionClassifierWeights& weights,
                                 const AttentionClassifierOptions& options);

// How many tokens of batch entry b are read.
int64_t ClassifierLength(const AttentionClassifierOptions& options, int64_t b, int64_t len);

// x_i = embedding[token] + position; rows beyond the length are zeros, which nothing sees.
void EmbedTokens(const TensorView<const int32_t>& tokens, const AttentionClassifierWeights& weights,
                 const AttentionClassifierOptions& options, const TensorView<float>& x,
                 ThreadPool& pool);

// Weights of the first rows of h; double, because a sum of many rows follows.
void FillPoolWeights(const TensorView<float>& h, int64_t b,
                     const AttentionClassifierWeights& weights, Pooling pooling,
                     std::span<double> to);

// The rows of each entry of h, [batch, 1, len, dim], become one of `pooled`, [batch, dim].
void PoolEntries(const TensorView<float>& h, const AttentionClassifierWeights& weights,
                 const AttentionClassifierOptions& options, float* pooled, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_LAYERS_ATTENTION_CLASSIFIER_H_
