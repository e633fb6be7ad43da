// attention_classifier by name.
#include "src/choice.h"
#include "src/layers/attention_classifier.h"
#include "src/layers/multi_head_request.h"
#include "src/layers/request.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {

ClassifierRequest ReadClassifier(const RequestReader& reader) {
  ClassifierRequest r;
  const AnyTensor* tokens = reader.Input("tokens");
  if (tokens == nullptr) Fail(ErrorCode::kOption, "input tokens is missing");
  if (tokens->rank != 2) Fail(ErrorCode::kShape, "tokens must have rank 2: [batch, len]");
  r.tokens = reader.IntTensor("tokens");
  r.weights.embedding = ReadRequiredWeight(reader, "embedding", 2);
  r.weights.position_table = ReadWeight(reader, "position_table", 2);
  TensorView<const float> x;  // only its extents are read
  x.shape = {r.tokens.shape[2], 1, r.tokens.shape[3], r.weights.embedding.shape[3]};
  const MultiHeadRequest heads = ReadMultiHead(reader, x, x, x);
  r.weights.attention = heads.weights;
  r.weights.pool_query = reader.Floats("pool_query");
  r.weights.w_class = ReadRequiredWeight(reader, "w_class", 2);
  r.weights.b_class = reader.Floats("b_class");
  r.options.attention = heads.options;
  r.options.pooling = ReadChoice<Pooling>(reader, "pooling",
                                          {{"mean", Pooling::kMean},
                                           {"first", Pooling::kFirst},
                                           {"max", Pooling::kMax},
                                           {"attention", Pooling::kAttention}})
                          .value_or(Pooling::kMean);
  return r;
}

std::vector<OutputSpec> PlanAttentionClassifier(const RequestReader& reader) {
  const ClassifierRequest r = ReadClassifier(reader);
  ValidateAttentionClassifier(r.tokens, r.weights, r.options);
  return {{"output", 2, {r.tokens.shape[2], r.weights.w_class.shape[2], 0, 0}}};
}

void RunAttentionClassifier(const RequestReader& reader, std::span<const NamedTensor> outputs,
                            ThreadPool* pool) {
  const ClassifierRequest r = ReadClassifier(reader);
  const TensorView<float> view = OutputView(outputs, "output");  // [batch, num_classes, 1, 1]
  const TensorView<float> logits = {
      view.data, {1, 1, view.shape[0], view.shape[1]}, {0, 0, view.strides[0], view.strides[1]}};
  AttentionClassifier(r.tokens, r.weights, r.options, logits, pool);
}

}  // namespace heed
