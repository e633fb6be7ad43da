// Memory-compressed attention: blocks of tokens become one key and one value each, by a mean or a
// matrix product; then the exact loop.
#include <algorithm>

#include "heed/linear.h"
#include "src/compose/checks.h"
#include "src/compose/compose_problem.h"
#include "src/compose/rows.h"
#include "src/low_rank/problem.h"
#include "src/memory_errors.h"
#include "src/message.h"

namespace heed {
namespace {

constexpr int64_t kDefaultCompression = 3;

void CheckConvolution(const BlockConvolution& c, int64_t heads, int64_t width,
                      int64_t compression) {
  if (!c.weights.has_value()) {
    if (c.bias.empty()) return;
    Fail(ErrorCode::kOption, "{} needs {}: without it blocks are means", {c.bias_name, c.name});
  }
  CheckInput(c.name, c.weights);
  const Extents& s = c.weights.shape;
  const bool fits = s[0] == 1 || s[0] == heads;
  CheckShape(c.name, s, {fits ? s[0] : heads, width, width, compression},
             "[1 or num_kv_heads, out, in, compression], out and in as wide as the tokens");
  if (c.weights.strides[2] != s[3] || c.weights.strides[1] != s[2] * s[3]) {
    Fail(ErrorCode::kShape, "{} has strides {}; each head must be contiguous",
         {c.name, c.weights.strides});
  }
  if (c.bias.size() == static_cast<size_t>(width)) return;
  CheckValueCount(c.bias_name, c.bias.size(), heads * width,
                  "one a dimension, for each head or all");
}

int64_t CompressionOf(const MemoryCompressedOptions& o) {
  if (o.compression) return *o.compression;
  if (o.key_conv.has_value()) return o.key_conv.shape[3];
  return o.value_conv.has_value() ? o.value_conv.shape[3] : kDefaultCompression;
}

// Means of the tokens that a block has.
void MeanOfBlocks(const TensorView<const float>& tokens, const AttentionProblem& p,
                  int64_t compression, const TensorView<float>& to, ThreadPool& pool) {
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t n) {
    const int64_t begin = n * compression;
    const int64_t end = std::min(begin + compression, p.KeyLength(b, 0));
    for (int64_t d = 0; d < to.shape[3]; ++d) {
      float sum = 0;
      for (int64_t j = begin; j < end; ++j) sum += tokens(b, h, j, d);
      to(b, h, n, d) = end > begin ? sum / static_cast<float>(end - begin) : 0;
    }
  });
}

}  // namespace

void GatherBlocks(const TensorView<const float>& tokens, const AttentionProblem& p,
                  int64_t compression, const TensorView<float>& to, ThreadPool& pool) {
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t n) {
    float* row = &to(b, h, n, 0);
    for (int64_t d = 0; d < tokens.shape[3]; ++d) {
      for (int64_t j = n * compression; j < (n + 1) * compression; ++j) {
        *row++ = j < p.KeyLength(b, 0) ? tokens(b, h, j, d) : 0.0f;
      }
    }
  });
}

namespace {

void Convolve(const BlockConvolution& c, const TensorView<const float>& tokens,
              const AttentionProblem& p, const TensorView<float>& to, ThreadPool& pool) {
  const auto [heads, out, in, compression] = c.weights.shape;
  const OwnedTensor blocks({to.shape[0], to.shape[1], to.shape[2], in * compression});
  if (blocks.view().size() > 0) GatherBlocks(tokens, p, compression, blocks.view(), pool);
  const TensorView<const float> weights = {c.weights.data,
                                           {1, heads, out, in * compression},
                                           {0, c.weights.strides[0], in * compression, 1}};
  Bmm(blocks.view(), TransposedView(weights), to, &pool);
  if (c.bias.empty()) return;
  const int64_t width = to.shape[3];
  const bool shared = c.bias.size() == static_cast<size_t>(width);
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t n) {
    const float* bias = c.bias.data() + (shared ? 0 : h * width);
    for (int64_t d = 0; d < width; ++d) to(b, h, n, d) += bias[d];
  });
}

}  // namespace

void CompressTokens(const BlockConvolution& c, const TensorView<const float>& tokens,
                    const AttentionProblem& p, int64_t compression, const TensorView<float>& to,
                    ThreadPool& pool) {
  if (c.weights.has_value()) return Convolve(c, tokens, p, to, pool);
  MeanOfBlocks(tokens, p, compression, to, pool);
}

BlockConvolution KeyConvolution(const MemoryCompressedOptions& o) {
  return {"key_conv", "key_conv_bias", o.key_conv, o.key_conv_bias};
}
BlockConvolution ValueConvolution(const MemoryCompressedOptions& o) {
  return {"value_conv", "value_conv_bias", o.value_conv, o.value_conv_bias};
}

AttentionOptions OverTokens(const MemoryCompressedOptions& o) {
  AttentionOptions options;
  options.scale = o.scale;
  options.causal = o.causal;
  options.query_offset = o.query_offset;
  options.key_lengths = o.key_lengths;
  options.sinks = o.sinks;
  return options;
}

MemoryCompressedProblem ValidateMemoryCompressed(const TensorView<const float>& q,
                                                 const TensorView<const float>& k,
                                                 const TensorView<const float>& v,
                                                 const MemoryCompressedOptions& o) {
  const AttentionProblem p = ValidateLowRank(q, k, v, OverTokens(o));
  MemoryCompressedProblem m;
  m.compression = CompressionOf(o);
  if (m.compression < 1) {
    Fail(ErrorCode::kRange, "compression = {}; a block has at least one token", {m.compression});
  }
  CheckConvolution(KeyConvolution(o), p.num_kv_heads, p.head_dim, m.compression);
  CheckConvolution(ValueConvolution(o), p.num_kv_heads, p.head_dim_v, m.compression);
  const auto blocks = [&](int64_t tokens) {
    return tokens / m.compression + (tokens % m.compression > 0 ? 1 : 0);
  };
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t length = p.KeyLength(b, 0);
    if (!o.causal) m.seen.push_back(static_cast<int32_t>(blocks(length)));
    for (int64_t i = 0; i < p.q_len && o.causal; ++i) {
      const int64_t tokens = std::clamp<int64_t>(p.Position(b, i) + 1, 0, length);
      m.seen.push_back(static_cast<int32_t>(tokens / m.compression));
    }
  }
  m.over_blocks.scale = o.scale;
  m.over_blocks.sinks = o.sinks;
  m.over_blocks.key_lengths = m.seen;
  m.k = {p.batch, p.num_kv_heads, blocks(p.kv_len), p.head_dim};
  m.v = {p.batch, p.num_kv_heads, blocks(p.kv_len), p.head_dim_v};
  return m;
}

void MemoryCompressedAttention(TensorView<const float> q, TensorView<const float> k,
                               TensorView<const float> v, const MemoryCompressedOptions& options,
                               const AttentionOutputs& outputs, ThreadPool* pool) {
  WithMemoryErrors("memory-compressed attention", [&] {
    const MemoryCompressedProblem m = ValidateMemoryCompressed(q, k, v, options);
    ValidateComposed(q, Planned(m.k), Planned(m.v), m.over_blocks, outputs);
    CheckNoScores(outputs);
    SpansOf(outputs).ApartFrom("k", k).ApartFrom("v", v).ApartFrom(options);
    const AttentionProblem p = ValidateLowRank(q, k, v, OverTokens(options));
    const OwnedTensor keys(m.k), values(m.v);
    ThreadPool& threads = PoolOrDefault(pool);
    CompressTokens(KeyConvolution(options), k, p, m.compression, keys.view(), threads);
    CompressTokens(ValueConvolution(options), v, p, m.compression, values.view(), threads);
    Attention(q, keys.view(), values.view(), m.over_blocks, outputs, pool);
  });
}

}  // namespace heed
