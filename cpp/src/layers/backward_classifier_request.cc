// The way back of attention_classifier, by name.
#include "src/layers/attention_classifier.h"
#include "src/layers/backward_classifier.h"
#include "src/layers/backward_request.h"
#include "src/view_checks.h"

namespace heed {

void AttentionClassifierRequestBackward(const RequestReader& reader, NamedTensors d_results,
                                        const GradientPlaces& places, ThreadPool& pool) {
  const ClassifierRequest r = ReadClassifier(reader);
  ValidateAttentionClassifier(r.tokens, r.weights, r.options);
  AttentionClassifierGradients to;
  to.d_embedding = places.Tensor("embedding");
  to.d_position_table = places.Tensor("position_table");
  to.d_w_class = places.Tensor("w_class");
  to.d_b_class = places.Vector("b_class");
  to.d_pool_query = places.Vector("pool_query");
  to.attention = ReadMultiHeadGradients(places);
  const TensorView<float> view = OutputView(d_results, "output");  // [batch, num_classes, 1, 1]
  const TensorView<const float> d_output = {
      view.data, {1, 1, view.shape[0], view.shape[1]}, {0, 0, view.strides[0], view.strides[1]}};
  CheckInput("gradient of output", d_output);
  AttentionClassifierBackward(r.tokens, r.weights, r.options, d_output, to, pool);
}

}  // namespace heed
