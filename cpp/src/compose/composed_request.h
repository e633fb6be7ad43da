// What requests of composed mechanisms have in common: attention inside, with float32 tensors.
#ifndef HEED_SRC_COMPOSE_COMPOSED_REQUEST_H_
#define HEED_SRC_COMPOSE_COMPOSED_REQUEST_H_

#include <span>

#include "heed/compose.h"
#include "heed/request.h"
#include "src/compose/compose_problem.h"
#include "src/exact/request.h"
#include "src/request_reader.h"

namespace heed {

// A request whose tensors are float32.
struct ComposedRequest {
  TensorView<const float> q, k, v;
  AttentionRequest rest;
};

ComposedRequest ReadComposed(const RequestReader& reader, const TensorView<const float>& q);
ComposedRequest ReadComposed(const RequestReader& reader);

// What each row adds to the options of attention, which are those of `r`.
DifferentialOptions ReadDifferential(const RequestReader& reader, const ComposedRequest& r);
TalkingHeadsOptions ReadTalkingHeads(const RequestReader& reader, const ComposedRequest& r);
HopfieldOptions ReadHopfield(const RequestReader& reader, const ComposedRequest& r);
TensorView<const float> ReadGate(const RequestReader& reader);
// [num_heads, num_queries, head_dim], and the rest of the request with them in every batch entry.
AttentionRequest ReadPooling(const RequestReader& reader);

struct ExternalRequest {
  TensorView<const float> q, memory_k, memory_v;
  ExternalOptions options;
};
ExternalRequest ReadExternal(const RequestReader& reader);

// A synthesizer as the request of the attention it comes down to.
struct SynthesizerRequest {
  TensorView<const float> hidden, weight, row_bias, scores, v;
  AttentionRequest rest;

  bool random() const { return scores.has_value(); }
};
SynthesizerRequest ReadSynthesizer(const RequestReader& reader);
SynthesizerProblem ValidateSynthesizer(const SynthesizerRequest& r);
// The call of attention that it comes down to, to be planned.
AttentionRequest AttentionOf(const SynthesizerRequest& r);

// Where the results that the request asks for go.
AttentionOutputs FloatOutputs(const ComposedRequest& r, std::span<const NamedTensor> outputs);

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_COMPOSED_REQUEST_H_
