// Gradients of layers behind requests: from names to the way back, a verb a mechanism. Inputs are
// float32; d_output is what arrives at the result "output".
#ifndef HEED_SRC_LAYERS_BACKWARD_REQUEST_H_
#define HEED_SRC_LAYERS_BACKWARD_REQUEST_H_

#include <span>

#include "src/gradient/backward_places.h"
#include "src/layers/backward_multi_head.h"
#include "src/layers/multi_head_request.h"
#include "src/request_reader.h"

namespace heed {

using NamedTensors = std::span<const NamedTensor>;

// Of the options between the projections.
AttentionGradients ReadOptionGradients(const GradientPlaces& places);

// Of the attention inside a layer, without its inputs.
MultiHeadGradients ReadMultiHeadGradients(const GradientPlaces& places);

void MultiHeadRequestBackward(const RequestReader& reader, NamedTensors d_results,
                              const GradientPlaces& places, ThreadPool& pool);
void MultiQueryRequestBackward(const RequestReader& reader, NamedTensors d_results,
                               const GradientPlaces& places, ThreadPool& pool);
void TransformerBlockRequestBackward(const RequestReader& reader, NamedTensors d_results,
                                     const GradientPlaces& places, ThreadPool& pool);
void AttentionClassifierRequestBackward(const RequestReader& reader, NamedTensors d_results,
                                        const GradientPlaces& places, ThreadPool& pool);
void MultiHeadLatentRequestBackward(const RequestReader& reader, NamedTensors d_results,
                                    const GradientPlaces& places, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_LAYERS_BACKWARD_REQUEST_H_
