// Backward of memory-compressed attention: the exact loop's over blocks, whose gradients go to
// their tokens: evenly from a mean, and by dx = W^T dy, dW = sum dy x^T from a convolution.
#include <algorithm>

#include "heed/linear.h"
#include "src/low_rank/backward.h"
#include "src/low_rank/problem.h"

namespace heed {
namespace {

// A convolution and where its gradients go.
struct BlockGradient {
  BlockConvolution conv;
  TensorView<float> d_tokens, d_weights;
  std::span<float> d_bias;
};

void SpreadMeans(const TensorView<float>& d_blocks, const AttentionProblem& p, int64_t compression,
                 const TensorView<float>& to, ThreadPool& pool) {
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t j) {
    const int64_t length = p.KeyLength(b, 0), n = j / compression;
    const int64_t count = std::min((n + 1) * compression, length) - n * compression;
    for (int64_t d = 0; d < to.shape[3]; ++d) {
      to(b, h, j, d) = j < length ? d_blocks(b, h, n, d) / static_cast<float>(count) : 0.0f;
    }
  });
}

// Rows of weights as [1, heads, out, in * compression].
TensorView<const float> AsMatrices(const TensorView<const float>& weights) {
  const auto [heads, out, in, compression] = weights.shape;
  return {weights.data,
          {1, heads, out, in * compression},
          {0, weights.strides[0], in * compression, 1}};
}

void SpreadConvolution(const BlockGradient& g, const TensorView<float>& d_blocks,
                       const AttentionProblem& p, int64_t compression, ThreadPool& pool) {
  const TensorView<const float> weights = AsMatrices(g.conv.weights);
  const Extents& blocks = d_blocks.shape;
  const OwnedTensor rows({blocks[0], blocks[1], blocks[2], weights.shape[3]});
  Bmm(d_blocks, weights, rows.view(), &pool);
  const TensorView<float>& to = g.d_tokens;
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t j) {
    const bool exists = j < p.KeyLength(b, 0);
    for (int64_t d = 0; d < to.shape[3]; ++d) {
      const int64_t at = d * compression + j % compression;
      to(b, h, j, d) = exists ? rows.view()(b, h, j / compression, at) : 0.0f;
    }
  });
}

// The sum over the batch, and over heads that share it, of what each gives.
void AddWeights(const BlockGradient& g, const TensorView<const float>& tokens,
                const TensorView<float>& d_blocks, const AttentionProblem& p, int64_t compression,
                ThreadPool& pool) {
  const Extents& shape = d_blocks.shape;
  const int64_t width = shape[3], inputs = width * compression;
  const OwnedTensor rows({shape[0], shape[1], shape[2], inputs});
  if (rows.view().size() > 0) GatherBlocks(tokens, p, compression, rows.view(), pool);
  const OwnedTensor turned = Transposed(d_blocks, pool);
  const OwnedTensor products({shape[0], shape[1], width, inputs});
  Bmm(turned.view(), rows.view(), products.view(), &pool);
  const int64_t heads = g.d_weights.shape[0];
  ForEachRow({1, heads, width, 1}, pool, [&](int64_t, int64_t h, int64_t out) {
    float* to = g.d_weights.data + h * g.d_weights.strides[0] + out * inputs;
    std::fill_n(to, inputs, 0.0f);
    for (int64_t b = 0; b < shape[0]; ++b) {
      for (int64_t from = heads == 1 ? 0 : h; from < (heads == 1 ? shape[1] : h + 1); ++from) {
        for (int64_t x = 0; x < inputs; ++x) to[x] += products.view()(b, from, out, x);
      }
    }
  });
}

void AddBias(const TensorView<float>& d_blocks, std::span<float> to, ThreadPool& pool) {
  const auto [batch, heads, blocks, width] = d_blocks.shape;
  const bool shared = to.size() == static_cast<size_t>(width);
  ForEachRow({1, 1, static_cast<int64_t>(to.size()), 1}, pool,
             [&, batch = batch, heads = heads, blocks = blocks, width = width](int64_t, int64_t,
                                                                               int64_t at) {
               double sum = 0;
               const int64_t h = at / width;
               for (int64_t b = 0; b < batch; ++b) {
                 for (int64_t from = shared ? 0 : h; from < (shared ? heads : h + 1); ++from) {
                   for (int64_t n = 0; n < blocks; ++n) {
                     sum += double{d_blocks(b, from, n, at % width)};
                   }
                 }
               }
               to[static_cast<size_t>(at)] = static_cast<float>(sum);
             });
}

void Decompress(const BlockGradient& g, const TensorView<const float>& tokens,
                const TensorView<float>& d_blocks, const AttentionProblem& p, int64_t compression,
                ThreadPool& pool) {
  if (g.d_tokens.has_value()) {
    if (g.conv.weights.has_value()) {
      SpreadConvolution(g, d_blocks, p, compression, pool);
    } else {
      SpreadMeans(d_blocks, p, compression, g.d_tokens, pool);
    }
  }
  if (g.d_weights.has_value()) AddWeights(g, tokens, d_blocks, p, compression, pool);
  if (!g.d_bias.empty()) AddBias(d_blocks, g.d_bias, pool);
}

}  // namespace

void MemoryCompressedBackward(const TensorView<const float>& q, const TensorView<const float>& k,
                              const TensorView<const float>& v,
                              const MemoryCompressedOptions& options,
                              const LowRankArriving& arriving, const LowRankGradients& to,
                              ThreadPool& pool) {
  const MemoryCompressedProblem m = ValidateMemoryCompressed(q, k, v, options);
  const AttentionProblem p = ValidateLowRank(q, k, v, OverTokens(options));
  const OwnedTensor keys(m.k), values(m.v), d_keys(m.k), d_values(m.v);
  CompressTokens(KeyConvolution(options), k, p, m.compression, keys.view(), pool);
  CompressTokens(ValueConvolution(options), v, p, m.compression, values.view(), pool);
  AttentionGradients gradients;
  gradients.d_lse = arriving.d_lse;
  gradients.d_q = to.d_q;
  gradients.d_k = d_keys.view();
  gradients.d_v = d_values.view();
  gradients.d_sinks = to.d_sinks;
  AttentionBackward(q, keys.view(), values.view(), arriving.out, arriving.lse, arriving.d_out,
                    m.over_blocks, gradients, &pool);
  Decompress({KeyConvolution(options), to.d_k, to.d_key_conv, to.d_key_conv_bias}, k, d_keys.view(),
             p, m.compression, pool);
  Decompress({ValueConvolution(options), to.d_v, to.d_value_conv, to.d_value_conv_bias}, v,
             d_values.view(), p, m.compression, pool);
}

}  // namespace heed
