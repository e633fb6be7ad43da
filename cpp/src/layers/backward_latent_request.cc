// The way back of multi_head_latent, by name.
#include "src/layers/backward_latent.h"
#include "src/layers/backward_request.h"
#include "src/layers/request.h"
#include "src/view_checks.h"

namespace heed {

void MultiHeadLatentRequestBackward(const RequestReader& reader, NamedTensors d_results,
                                    const GradientPlaces& places, ThreadPool& pool) {
  const LatentRequest r = ReadLatent(reader);
  LatentGradients to;
  to.d_x = places.Rows("x");
  to.d_w_dq = places.Tensor("w_dq");
  to.d_w_uq = places.Tensor("w_uq");
  to.d_w_qr = places.Tensor("w_qr");
  to.d_w_dkv = places.Tensor("w_dkv");
  to.d_w_kr = places.Tensor("w_kr");
  to.d_w_uk = places.Tensor("w_uk");
  to.d_w_uv = places.Tensor("w_uv");
  to.d_w_o = places.Tensor("w_o");
  to.d_norm_q = places.Vector("norm_q_weight");
  to.d_norm_kv = places.Vector("norm_kv_weight");
  to.attention = ReadOptionGradients(places);
  to.attention.d_lse = OutputView(d_results, "lse");
  const TensorView<const float> d_output = RowsOutput(d_results, "output");
  CheckInput("gradient of output", d_output);
  MultiHeadLatentBackward(r.x, r.weights, r.options, d_output, to, pool);
}

}  // namespace heed
