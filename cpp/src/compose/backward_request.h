// Gradients of composed mechanisms behind requests: what those of each row are given.
#ifndef HEED_SRC_COMPOSE_BACKWARD_REQUEST_H_
#define HEED_SRC_COMPOSE_BACKWARD_REQUEST_H_

#include <span>
#include <string_view>

#include "heed/gradient.h"
#include "src/request_reader.h"

namespace heed {

// What arrives at the results of a request, and where the gradients of its inputs go. All tensors
// are float32.
struct ComposedBackward {
  const RequestReader& reader;
  std::span<const NamedTensor> d_results;
  std::span<const NamedTensor> gradients;
  ThreadPool& pool;

  // [batch, num_heads, q_len, dim].
  TensorView<const float> d_output() const;
  // Of rows that give [batch, len, dim]: [batch, 1, len, dim].
  TensorView<const float> d_rows() const;
  // [batch, num_heads, q_len, 1]; absent where the row gives no lse.
  TensorView<const float> d_lse() const;
  // The gradient of an input, with leading extents of 1; absent where it is not wanted.
  TensorView<float> Wanted(std::string_view name) const;
  // Those of the options of attention that are tensors or lists.
  AttentionGradients WantedOptions() const;
  // The same, and those of q, k and v.
  AttentionGradients WantedOfAttention() const;
};

// What runs forward again and writes the wanted gradients, for each row.
void AttentionFreeBackward(const ComposedBackward& call);
void AttentionPoolingBackward(const ComposedBackward& call);
void DifferentialBackward(const ComposedBackward& call);
void ExternalBackward(const ComposedBackward& call);
void GatedBackward(const ComposedBackward& call);
void GraphBackward(const ComposedBackward& call);
void HopfieldBackward(const ComposedBackward& call);
void InducedSetBackward(const ComposedBackward& call);
void PerceiverBackward(const ComposedBackward& call);
void SynthesizerBackward(const ComposedBackward& call);
void TalkingHeadsBackward(const ComposedBackward& call);

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_BACKWARD_REQUEST_H_
