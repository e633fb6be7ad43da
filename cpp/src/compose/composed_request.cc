#include "src/compose/composed_request.h"

namespace heed {

ComposedRequest ReadComposed(const RequestReader& reader, const TensorView<const float>& q) {
  ComposedRequest r = {q, reader.RequiredTensor("k"), reader.RequiredTensor("v"), {}};
  r.rest.q = StoredTensor(r.q);
  r.rest.k = StoredTensor(r.k);
  r.rest.v = StoredTensor(r.v);
  ReadExactOptions(reader, r.rest);
  return r;
}

ComposedRequest ReadComposed(const RequestReader& reader) {
  return ReadComposed(reader, reader.RequiredTensor("q"));
}

AttentionOutputs FloatOutputs(const ComposedRequest& r, std::span<const NamedTensor> outputs) {
  AttentionOutputs out;
  out.output = OutputView(outputs, "output");
  if (r.rest.return_lse) out.lse = OutputView(outputs, "lse");
  if (r.rest.return_weights) out.weights = OutputView(outputs, "weights");
  if (r.rest.return_scores) {
    out.scores = OutputView(outputs, "scores");
    out.score_stage = *r.rest.return_scores;
  }
  return out;
}

}  // namespace heed
