// Synthesizers: scores without keys. The dense one is a dot product with learned rows, so it stays
// in the tiled loop and its scores are never stored; the random one is a bias without a dot
// product.
#include "src/compose/synthesizer.h"

#include <algorithm>
#include <string>

#include "src/exact/attention_spans.h"
#include "src/memory_errors.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

// The first `need` of a learned tensor's last extents, from axis `first_cut` on; batch and heads
// broadcast.
TensorView<const float> Corner(std::string_view name, TensorView<const float> view,
                               const Extents& need, size_t first_cut) {
  CheckInput(name, view);
  for (size_t i = first_cut; i < 4; ++i) {
    if (need[i] > view.shape[i]) {
      Fail(ErrorCode::kShape, "{} has shape {}; it must reach to {}", {name, view.shape, need});
    }
    view.shape[i] = need[i];
  }
  return Broadcast(name, view, need, "1, num_heads or 1, len, len or dim");
}

// Every head has scores of its own, so grouped values are one for each head, or one for all.
TensorView<const float> ValuesOfHeads(const TensorView<const float>& v, int64_t num_heads) {
  return Broadcast("v", v, {v.shape[0], num_heads, v.shape[2], v.shape[3]},
                   "batch, num_heads or 1, kv_len, head_dim_v");
}

void FillQueries(const TensorView<const float>& hidden, const TensorView<float>& queries,
                 ThreadPool& pool) {
  const int64_t width = hidden.shape[3];
  ForEachRow(queries.shape, pool, [&](int64_t b, int64_t h, int64_t i) {
    for (int64_t d = 0; d < width; ++d) {
      const float x = hidden(b, h, i, d);
      queries(b, h, i, d) = x < 0 ? 0.0f : x;  // NaN stays
    }
    queries(b, h, i, width) = 1.0f;
  });
}

void FillKeys(const SynthesizerProblem& p, const TensorView<float>& keys, ThreadPool& pool) {
  const int64_t width = p.k.shape[3];
  ForEachRow(keys.shape, pool, [&](int64_t, int64_t h, int64_t j) {
    for (int64_t d = 0; d < width; ++d) keys(0, h, j, d) = p.k(0, h, j, d);
    keys(0, h, j, width) = p.row_bias.has_value() ? p.row_bias(0, h, 0, j) : 0.0f;
  });
}

}  // namespace

SynthesizerProblem ValidateDenseSynthesizer(const TensorView<const float>& hidden,
                                            const TensorView<const float>& weight,
                                            const TensorView<const float>& bias,
                                            const TensorView<const float>& v,
                                            const AttentionOptions& options) {
  CheckInput("q", hidden);
  const Extents& h = hidden.shape;
  SynthesizerProblem p;
  p.q = hidden;
  p.v = ValuesOfHeads(v, h[1]);
  CheckInput("synthetic_keys", weight);
  if (weight.shape[3] != h[3]) {
    Fail(ErrorCode::kShape, "synthetic_keys has shape {}; its last extent must be that of q, {}",
         {weight.shape, h[3]});
  }
  p.k = Corner("synthetic_keys", weight, {h[0], h[1], v.shape[2], h[3]}, 2);
  if (bias.has_value()) p.row_bias = Corner("synthetic_bias", bias, {h[0], h[1], 1, v.shape[2]}, 3);
  p.options = options;
  if (!p.options.scale) p.options.scale = 1;
  if (options.score != Score::kDot) {
    Fail(ErrorCode::kUnsupported,
         "score: a dense synthesizer multiplies queries and synthetic_keys");
  }
  RefuseOtherWidths(options, "a dense synthesizer", "it has no keys of the tokens");
  return p;
}

SynthesizerProblem ValidateRandomSynthesizer(const TensorView<const float>& scores,
                                             const TensorView<const float>& v, int64_t q_len,
                                             const AttentionOptions& options) {
  if (options.scale || options.softcap || options.bias.has_value()) {
    Fail(ErrorCode::kUnsupported,
         "scale, softcap and bias: the scores of a random synthesizer are parameters themselves");
  }
  const int64_t heads = scores.shape[1];
  SynthesizerProblem p;
  p.v = ValuesOfHeads(v, heads);
  // Without dimensions every dot product is 0, and the bias is the score.
  p.q = {scores.data, {v.shape[0], heads, q_len, 0}, {0, 0, 0, 1}};
  p.k = {scores.data, {v.shape[0], heads, v.shape[2], 0}, {0, 0, 0, 1}};
  p.options = options;
  p.options.scale = 1;
  p.options.bias = Corner("synthetic_scores", scores, {v.shape[0], heads, q_len, v.shape[2]}, 2);
  return p;
}

DenseRows::DenseRows(const SynthesizerProblem& p, ThreadPool& pool)
    : queries_({p.q.shape[0], p.q.shape[1], p.q.shape[2], p.q.shape[3] + 1}),
      keys_({1, p.q.shape[1], p.v.shape[2], p.q.shape[3] + 1}) {
  if (p.q.shape[0] == 0) return;
  FillQueries(p.q, queries_.view(), pool);
  FillKeys(p, keys_.view(), pool);
}

TensorView<const float> DenseRows::keys() const {
  TensorView<const float> shared = keys_.view();
  shared.shape[0] = queries_.view().shape[0];
  shared.strides[0] = 0;
  return shared;
}

void DenseSynthesizer(TensorView<const float> hidden, TensorView<const float> weight,
                      TensorView<const float> bias, TensorView<const float> v,
                      const AttentionOptions& options, const AttentionOutputs& outputs,
                      ThreadPool* pool) {
  WithMemoryErrors("a dense Synthesizer", [&] {
    const SynthesizerProblem p = ValidateDenseSynthesizer(hidden, weight, bias, v, options);
    ValidateComposed(p.q, p.k, p.v, p.options, outputs);
    SpansOf(outputs).ApartFrom("weight", weight).ApartFrom("bias", bias);
    const DenseRows rows(p, PoolOrDefault(pool));
    Attention(rows.queries(), rows.keys(), p.v, p.options, outputs, pool);
  });
}

void RandomSynthesizer(TensorView<const float> scores, TensorView<const float> v,
                       const AttentionOptions& options, const AttentionOutputs& outputs,
                       ThreadPool* pool) {
  WithMemoryErrors("a random Synthesizer", [&] {
    const SynthesizerProblem p =
        ValidateRandomSynthesizer(scores, v, outputs.output.shape[2], options);
    Attention(p.q, p.k, p.v, p.options, outputs, pool);
  });
}

}  // namespace heed
