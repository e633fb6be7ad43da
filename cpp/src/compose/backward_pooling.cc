// Gradients of attention pooling: those of the queries are sums over batch entries.
#include "src/compose/backward_attention.h"
#include "src/compose/backward_request.h"
#include "src/compose/backward_rows.h"
#include "src/compose/composed_request.h"

namespace heed {

void AttentionPoolingBackward(const ComposedBackward& call) {
  const AttentionRequest r = ReadPooling(call.reader);
  const auto view = [](const StoredTensor& tensor) {
    return TensorView<const float>{static_cast<const float*>(tensor.data), tensor.shape,
                                   tensor.strides};
  };
  const AttentionOptions options = OptionsOf(r);
  const KeptAttention attention(view(r.q), view(r.k), view(r.v), options, call.pool);
  const OwnedTensor d_queries(r.q.shape);
  AttentionGradients to = call.WantedOfAttention();
  to.d_q = d_queries.view();
  to.d_lse = call.d_lse();
  attention.Backward(call.d_output(), to);
  SumOver(d_queries.view(), call.Wanted("queries"), call.pool);
}

}  // namespace heed
