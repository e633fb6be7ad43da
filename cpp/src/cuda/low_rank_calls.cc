#include "src/cuda/low_rank_calls.h"

#include <algorithm>
#include <vector>

#include "heed/linear.h"
#include "src/compose/compose_problem.h"
#include "src/cuda/plan.h"
#include "src/cuda/step_calls.h"
#include "src/cuda/step_checks.h"
#include "src/message.h"

namespace heed::cuda {
namespace {

void RefuseWeights(const TensorView<float>& weights) {
  if (weights.has_value()) {
    Fail(ErrorCode::kUnsupported,
         "weights of efficient attention are not offered on the GPU yet; use "
         "heed::EfficientAttention()");
  }
}

// What the attention of the device says of the tokens, and of the rows that stand for them.
void CheckSteps(const TensorView<const float>& q, const TensorView<const float>& k,
                const TensorView<const float>& v, const Extents& keys, const Extents& values,
                const AttentionOptions& over_tokens, const AttentionOptions& options,
                const AttentionOutputs& outputs) {
  ValidateForDevice(StoredTensor(q), StoredTensor(k), StoredTensor(v), over_tokens,
                    {.output = outputs.output}, {});
  ValidateForDevice(StoredTensor(q), StoredTensor(Planned(keys)), StoredTensor(Planned(values)),
                    options, outputs, {});
}

}  // namespace

// Linformer.

LinformerCall::LinformerCall(const TensorView<const float>& q, const TensorView<const float>& k,
                             const TensorView<const float>& v, const LinformerOptions& options,
                             const AttentionOutputs& outputs)
    : q_(q),
      k_(k),
      v_(v),
      options_(options),
      outputs_(outputs),
      problem_(ValidateLinformer(q, k, v, options)) {
  const LinformerProblem& p = problem_;
  ValidateComposed(q, Planned(p.k), Planned(p.v), p.over_projected, outputs);
  CheckNoScores(outputs);
  SpansOf(outputs).ApartFrom("k", k).ApartFrom("v", v).ApartFrom(options);
  AttentionOptions over_tokens;
  over_tokens.scale = options.scale;
  CheckSteps(q, k, v, p.k, p.v, over_tokens, p.over_projected, outputs);
  CheckEveryStep(*this);
}

void LinformerCall::Run(ComposedSteps& steps) const {
  const LinformerProblem& p = problem_;
  const TensorView<float> keys = steps.Allocate(p.k), values = steps.Allocate(p.v);
  const int32_t* lengths = steps.SendArray(options_.key_lengths);
  MultiplyParams of_keys = ProductOf(p.key_projection, k_, keys);
  MultiplyParams of_values = ProductOf(p.value_projection, v_, values);
  of_keys.inner_lengths = of_values.inner_lengths = lengths;
  steps.Run(of_keys);
  steps.Run(of_values);
  steps.Attend(q_, keys, values, p.over_projected, outputs_);
}

// Efficient attention: a feature of the keys is the scores of a query of its own, and a query is
// the scores of the features; both are biases of attention without a dot product.

EfficientCall::EfficientCall(const TensorView<const float>& q, const TensorView<const float>& k,
                             const TensorView<const float>& v, const EfficientOptions& options,
                             const AttentionOutputs& outputs)
    : q_(q), k_(k), v_(v), options_(options), outputs_(outputs) {
  const AttentionOptions over_tokens = ValidateEfficient(q, k, v, options);
  CheckNoScores(outputs);
  if (outputs.lse.has_value()) {
    Fail(ErrorCode::kUnsupported, "lse: efficient attention normalises twice");
  }
  RefuseWeights(outputs.weights);
  ValidateComposed(q, k, v, over_tokens, outputs);
  AttentionOptions over_features;
  over_features.scale = 1;
  const Extents keys = {k.shape[0], k.shape[1], k.shape[3], k.shape[3]};
  const Extents values = {k.shape[0], k.shape[1], k.shape[3], v.shape[3]};
  CheckSteps(q, k, v, keys, values, over_tokens, over_features, outputs);
  CheckEveryStep(*this);
}

void EfficientCall::Run(ComposedSteps& steps) const {
  const auto [batch, heads, kv_len, dim] = k_.shape;
  const TensorView<float> matrix = steps.Allocate({batch, heads, dim, v_.shape[3]});
  const TensorView<float> features = steps.Allocate({batch, heads, dim, kv_len});
  Copy(steps, TransposedView(k_), features);
  AttentionOptions options;
  options.scale = 1;
  options.bias = features;
  options.key_lengths = options_.key_lengths;
  steps.Attend(Planned({batch, heads, dim, 0}), Planned({batch, heads, kv_len, 0}), v_, options,
               {.output = matrix});
  options.bias = q_;
  options.key_lengths = {};
  steps.Attend(Planned({batch, q_.shape[1], q_.shape[2], 0}), Planned({batch, heads, dim, 0}),
               matrix, options, outputs_);
}

// Memory-compressed attention.

MemoryCompressedCall::MemoryCompressedCall(const TensorView<const float>& q,
                                           const TensorView<const float>& k,
                                           const TensorView<const float>& v,
                                           const MemoryCompressedOptions& options,
                                           const AttentionOutputs& outputs)
    : q_(q),
      k_(k),
      v_(v),
      options_(options),
      outputs_(outputs),
      problem_(ValidateMemoryCompressed(q, k, v, options)),
      tokens_(ValidateLowRank(q, k, v, OverTokens(options))) {
  const MemoryCompressedProblem& p = problem_;
  ValidateComposed(q, Planned(p.k), Planned(p.v), p.over_blocks, outputs);
  CheckNoScores(outputs);
  SpansOf(outputs).ApartFrom("k", k).ApartFrom("v", v).ApartFrom(options);
  CheckSteps(q, k, v, p.k, p.v, OverTokens(options), p.over_blocks, outputs);
  CheckEveryStep(*this);
}

void MemoryCompressedCall::Run(ComposedSteps& steps) const {
  const TensorView<float> keys = steps.Allocate(problem_.k), values = steps.Allocate(problem_.v);
  const bool convolves = options_.key_conv.has_value() || options_.value_conv.has_value();
  const int32_t* rows = convolves ? SendRowLengths(steps) : nullptr;
  Compress(steps, KeyConvolution(options_), k_, rows, keys);
  Compress(steps, ValueConvolution(options_), v_, rows, values);
  steps.Attend(q_, keys, values, problem_.over_blocks, outputs_);
}

void MemoryCompressedCall::Compress(ComposedSteps& steps, const BlockConvolution& convolution,
                                    const TensorView<const float>& tokens, const int32_t* rows,
                                    const TensorView<float>& to) const {
  if (convolution.weights.has_value()) return Convolve(steps, convolution, tokens, rows, to);
  MeanParams params{};
  params.tokens = RowsOf(tokens);
  params.out = RowsOf(to);
  params.batch = static_cast<int32_t>(to.shape[0]);
  params.heads = static_cast<int32_t>(to.shape[1]);
  params.group = 1;
  params.rows = static_cast<int32_t>(to.shape[2]);
  params.width = static_cast<int32_t>(to.shape[3]);
  params.len = static_cast<int32_t>(tokens.shape[2]);
  // A block that is longer than all tokens is one that holds them.
  params.block = static_cast<int32_t>(std::min<int64_t>(problem_.compression, params.len));
  params.lengths = steps.SendArray(options_.key_lengths);
  steps.Run(params);
}

// Tokens of a block that some block has; of blocks without tokens one, which adds the bias.
int64_t MemoryCompressedCall::NumRounds() const {
  return std::max<int64_t>(std::min(problem_.compression, tokens_.kv_len), 1);
}

// [rounds, batch]: how many blocks of an entry have an n-th token.
const int32_t* MemoryCompressedCall::SendRowLengths(ComposedSteps& steps) const {
  const int64_t block = problem_.compression;
  std::vector<int32_t> rows;
  for (int64_t n = 0; n < NumRounds(); ++n) {
    for (int64_t b = 0; b < tokens_.batch; ++b) {
      const int64_t behind = std::max<int64_t>(tokens_.KeyLength(b, 0) - n, 0);
      rows.push_back(static_cast<int32_t>((behind + block - 1) / block));
    }
  }
  return steps.SendArray(std::span<const int32_t>(rows));
}

// One product for each token of a block: the n-th tokens of all blocks with the n-th weights.
// Tokens beyond the length are zeros. Each kProductPart products are added up by themselves, and
// then to the sum: a sum of all, one after the other, would round as many times as a block has
// tokens.
void MemoryCompressedCall::Convolve(ComposedSteps& steps, const BlockConvolution& convolution,
                                    const TensorView<const float>& tokens, const int32_t* rows,
                                    const TensorView<float>& to) const {
  const float* bias = steps.SendArray(convolution.bias);
  const bool shared = static_cast<int64_t>(convolution.bias.size()) == to.shape[3];
  const DevicePairs<float> biases = {bias, {0, shared ? 0 : to.shape[3], 0, 1}};
  const int64_t rounds = NumRounds();
  TensorView<float> part = to;
  if (rounds > kProductPart) part = steps.Allocate(to.shape);
  for (int64_t n = 0; n < rounds; ++n) {
    const int64_t first = n / kProductPart * kProductPart;
    const TensorView<float>& sum = first == 0 ? to : part;
    MultiplyParams params = ProductOfToken(convolution, tokens, n, sum);
    params.addend_factor = 1;
    if (n == 0) params.addend = biases;
    if (n > first) params.addend = NumbersOf(sum);
    params.row_lengths = rows + n * tokens_.batch;
    steps.Run(params);
    const bool ends = n + 1 == rounds || n + 1 == first + kProductPart;
    if (ends && first > 0) steps.Run(MapOf(MapOp::kAdd, {.x = to, .y = part}, to));
  }
}

MultiplyParams MemoryCompressedCall::ProductOfToken(const BlockConvolution& convolution,
                                                    const TensorView<const float>& tokens,
                                                    int64_t n, const TensorView<float>& to) const {
  const TensorView<const float>& weights = convolution.weights;
  const auto [num_weights, out, in, block] = weights.shape;
  TensorView<const float> nth = tokens;
  nth.data += n * tokens.strides[2];
  nth.strides[2] *= block;
  const TensorView<const float> weights_of_nth = {
      weights.data + n, {1, num_weights, in, out}, {0, weights.strides[0], block, in * block}};
  return ProductOf(nth, weights_of_nth, to);
}

}  // namespace heed::cuda
