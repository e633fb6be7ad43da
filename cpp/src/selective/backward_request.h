// What gradients of selective rows behind requests have in common.
#ifndef HEED_SRC_SELECTIVE_BACKWARD_REQUEST_H_
#define HEED_SRC_SELECTIVE_BACKWARD_REQUEST_H_

#include <initializer_list>
#include <string_view>

#include "heed/gradient.h"
#include "src/gradient/backward_views.h"
#include "src/message.h"
#include "src/request_reader.h"

namespace heed {

// A reader of a request whose q, k and v are float32, and that asks for no result without a
// gradient. Throws Error(kDType | kUnsupported).
RequestReader DifferentiableReader(const Request& request);

// [batch, num_heads, q_len] as [batch, num_heads, q_len, 1].
inline TensorView<float> RowsOf(const AnyTensor* tensor) { return ViewOf(tensor, {0, 1, 2, -1}); }

// The plan of a row whose output [batch, num_heads, q_len, head_dim_v] is shaped as q but for its
// last extent: gradients of the inputs of these names that the request has.
BackwardPlan PlanOfRow(const Request& request, const Extents& q, int64_t head_dim_v,
                       std::initializer_list<std::string_view> names);

}  // namespace heed

#endif  // HEED_SRC_SELECTIVE_BACKWARD_REQUEST_H_
