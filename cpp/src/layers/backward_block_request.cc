// The way back of transformer_block, by name.
#include "src/layers/backward_block.h"
#include "src/layers/backward_request.h"
#include "src/layers/request.h"
#include "src/layers/transformer_block.h"
#include "src/view_checks.h"

namespace heed {

void TransformerBlockRequestBackward(const RequestReader& reader, NamedTensors d_results,
                                     const GradientPlaces& places, ThreadPool& pool) {
  const BlockRequest r = ReadBlock(reader);
  ValidateTransformerBlock(r.x, r.weights, r.options);
  TransformerBlockGradients to;
  to.d_x = places.Rows("x");
  to.attention = ReadMultiHeadGradients(places);
  to.feed_forward = {places.Tensor("w_up"), places.Tensor("w_gate"), places.Tensor("w_down"),
                     places.Vector("b_up"), places.Vector("b_gate"), places.Vector("b_down")};
  to.d_norm1_weight = places.Vector("norm1_weight");
  to.d_norm1_bias = places.Vector("norm1_bias");
  to.d_norm2_weight = places.Vector("norm2_weight");
  to.d_norm2_bias = places.Vector("norm2_bias");
  const TensorView<const float> d_output = RowsOutput(d_results, "output");
  CheckInput("gradient of output", d_output);
  TransformerBlockBackward(r.x, r.weights, r.options, d_output, to, pool);
}

}  // namespace heed
