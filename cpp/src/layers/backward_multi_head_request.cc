// The way back of multi_head, multi_query and grouped_query, by name.
#include "src/layers/backward_request.h"
#include "src/layers/request.h"
#include "src/view_checks.h"

namespace heed {
namespace {

void Backward(const MultiHeadRequest& r, NamedTensors d_results, const GradientPlaces& places,
              ThreadPool& pool) {
  const MultiHeadShape shape =
      ValidateMultiHead(r.query, r.key, r.value, r.weights, r.options, r.return_lse);
  MultiHeadGradients to = ReadMultiHeadGradients(places);
  to.d_query = places.Rows("query");
  to.d_key = places.Rows("key");
  to.d_value = places.Rows("value");
  to.attention.d_lse = OutputView(d_results, "lse");
  const TensorView<const float> d_output = RowsOutput(d_results, "output");
  CheckInput("gradient of output", d_output);
  MultiHeadPass(shape, r.query, r.key, r.value, r.weights, r.options, pool).Backward(d_output, to);
}

}  // namespace

AttentionGradients ReadOptionGradients(const GradientPlaces& places) {
  AttentionGradients to;
  to.d_bias = places.Tensor("bias");
  to.d_alibi_slopes = places.Vector("alibi_slopes");
  to.d_sinks = places.Vector("sinks");
  return to;
}

MultiHeadGradients ReadMultiHeadGradients(const GradientPlaces& places) {
  MultiHeadGradients to;
  to.d_w_q = places.Tensor("w_q");
  to.d_w_k = places.Tensor("w_k");
  to.d_w_v = places.Tensor("w_v");
  to.d_w_o = places.Tensor("w_o");
  to.d_b_q = places.Vector("b_q");
  to.d_b_k = places.Vector("b_k");
  to.d_b_v = places.Vector("b_v");
  to.d_b_o = places.Vector("b_o");
  to.d_bias_k = places.Vector("bias_k");
  to.d_bias_v = places.Vector("bias_v");
  to.d_head_mask = places.Vector("head_mask");
  to.attention = ReadOptionGradients(places);
  return to;
}

void MultiHeadRequestBackward(const RequestReader& reader, NamedTensors d_results,
                              const GradientPlaces& places, ThreadPool& pool) {
  Backward(ReadMultiHead(reader), d_results, places, pool);
}

void MultiQueryRequestBackward(const RequestReader& reader, NamedTensors d_results,
                               const GradientPlaces& places, ThreadPool& pool) {
  Backward(ReadMultiQuery(reader), d_results, places, pool);
}

}  // namespace heed
