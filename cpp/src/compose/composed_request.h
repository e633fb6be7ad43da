// What requests of composed mechanisms have in common: attention inside, with float32 tensors.
#ifndef HEED_SRC_COMPOSE_COMPOSED_REQUEST_H_
#define HEED_SRC_COMPOSE_COMPOSED_REQUEST_H_

#include <span>

#include "heed/request.h"
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

// Where the results that the request asks for go.
AttentionOutputs FloatOutputs(const ComposedRequest& r, std::span<const NamedTensor> outputs);

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_COMPOSED_REQUEST_H_
