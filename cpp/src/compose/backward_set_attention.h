// What the ways back through set blocks and the Perceiver share.
#ifndef HEED_SRC_COMPOSE_BACKWARD_SET_ATTENTION_H_
#define HEED_SRC_COMPOSE_BACKWARD_SET_ATTENTION_H_

#include "src/compose/backward_request.h"
#include "src/layers/backward_multi_head.h"

namespace heed {

// A gradient that is a list of numbers; empty where it is not wanted. Contiguous.
std::span<float> WantedNumbers(const ComposedBackward& call, std::string_view name);

// [batch, len, dim] as [batch, 1, len, dim]; absent stays absent.
TensorView<float> AsRows(const TensorView<float>& leading);

// Attention whose keys and values are projections of the same rows: d_y is a sum.
void CrossBackward(MultiHeadPass& pass, const TensorView<const float>& d_output,
                   MultiHeadGradients to, const TensorView<float>& d_y, ThreadPool& pool);

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_BACKWARD_SET_ATTENTION_H_
