// Gradients of synthesizers: of a dense one through its dot products with learned rows, of a random
// one those of a bias.
#include "src/compose/backward_attention.h"
#include "src/compose/backward_request.h"
#include "src/compose/backward_rows.h"
#include "src/compose/composed_request.h"
#include "src/compose/synthesizer.h"

namespace heed {
namespace {

// The part of a learned tensor's gradient that was used; the rest is 0.
TensorView<float> ClearedCorner(TensorView<float> gradient, int64_t len, int64_t width,
                                ThreadPool& pool) {
  if (!gradient.has_value()) return {};
  ClearRows(gradient, pool);
  gradient.shape[2] = len;
  gradient.shape[3] = width;
  return gradient;
}

// Attention whose values may be those of all heads.
void Backward(const ComposedBackward& call, const KeptAttention& attention,
              const TensorView<const float>& v, AttentionGradients to) {
  const OwnedTensor d_v(v.shape);
  to.d_v = d_v.view();
  to.d_lse = call.d_lse();
  attention.Backward(call.d_output(), to);
  SumOver(d_v.view(), call.Wanted("v"), call.pool);
}

void RandomBackward(const ComposedBackward& call, const SynthesizerRequest& r) {
  SynthesizerProblem p = ValidateRandomSynthesizer(r.scores, r.v, r.v.shape[2], OptionsOf(r.rest));
  TensorView<const float>& bias = p.options.bias;
  bias.shape[0] = 1;  // its gradient is a sum over the batch
  const KeptAttention attention(p.q, p.k, p.v, p.options, call.pool);
  AttentionGradients to = call.WantedOptions();
  to.d_bias =
      ClearedCorner(call.Wanted("synthetic_scores"), bias.shape[2], bias.shape[3], call.pool);
  Backward(call, attention, p.v, to);
}

// Of relu(hidden).
void HiddenGradient(const TensorView<const float>& hidden, const TensorView<const float>& d_queries,
                    const TensorView<float>& to, ThreadPool& pool) {
  if (!to.has_value()) return;
  ForEachRow(to.shape, pool, [&](int64_t b, int64_t h, int64_t i) {
    for (int64_t d = 0; d < to.shape[3]; ++d) {
      to(b, h, i, d) = hidden(b, h, i, d) <= 0 ? 0.0f : d_queries(b, h, i, d);
    }
  });
}

void KeyGradients(const ComposedBackward& call, TensorView<const float> d_keys) {
  const int64_t len = d_keys.shape[2], width = d_keys.shape[3] - 1;
  TensorView<const float> last = d_keys;  // the last column as a row
  last.data += width;
  last.shape = {d_keys.shape[0], d_keys.shape[1], 1, len};
  last.strides = {d_keys.strides[0], d_keys.strides[1], 0, d_keys.strides[2]};
  d_keys.shape[3] = width;
  SumOver(d_keys, ClearedCorner(call.Wanted("synthetic_keys"), len, width, call.pool), call.pool);
  TensorView<float> d_bias = call.Wanted("synthetic_bias");
  d_bias.shape = {1, d_bias.shape[2], 1, d_bias.shape[3]};  // [heads, len]
  d_bias.strides = {0, d_bias.strides[2], 0, d_bias.strides[3]};
  SumOver(last, ClearedCorner(d_bias, 1, len, call.pool), call.pool);
}

void DenseBackward(const ComposedBackward& call, const SynthesizerRequest& r) {
  const SynthesizerProblem p =
      ValidateDenseSynthesizer(r.hidden, r.weight, r.row_bias, r.v, OptionsOf(r.rest));
  const DenseRows rows(p, call.pool);
  const KeptAttention attention(rows.queries(), rows.keys(), p.v, p.options, call.pool);
  const OwnedTensor d_queries(rows.queries().shape), d_keys(rows.keys().shape);
  AttentionGradients to = call.WantedOptions();
  to.d_q = d_queries.view();
  to.d_k = d_keys.view();
  Backward(call, attention, p.v, to);
  HiddenGradient(p.q, d_queries.view(), call.Wanted("q"), call.pool);
  KeyGradients(call, d_keys.view());
}

}  // namespace

void SynthesizerBackward(const ComposedBackward& call) {
  const SynthesizerRequest r = ReadSynthesizer(call.reader);
  if (r.random()) {
    RandomBackward(call, r);
  } else {
    DenseBackward(call, r);
  }
}

}  // namespace heed
