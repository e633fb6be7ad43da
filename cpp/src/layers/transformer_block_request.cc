// transformer_block by name.
#include "src/choice.h"
#include "src/layers/multi_head_request.h"
#include "src/layers/request.h"
#include "src/layers/transformer_block.h"

namespace heed {

Activation ReadActivation(const RequestReader& reader) {
  return ReadChoice<Activation>(reader, "activation",
                                {{"gelu", Activation::kGelu},
                                 {"gelu_tanh", Activation::kGeluTanh},
                                 {"silu", Activation::kSilu},
                                 {"relu", Activation::kRelu}})
      .value_or(Activation::kGelu);
}

BlockRequest ReadBlock(const RequestReader& reader) {
  BlockRequest r;
  r.x = ReadRows(reader, "x");
  const MultiHeadRequest heads = ReadMultiHead(reader, r.x, r.x, r.x);
  r.weights.attention = heads.weights;
  r.weights.norm1_weight = reader.Floats("norm1_weight");
  r.weights.norm1_bias = reader.Floats("norm1_bias");
  r.weights.norm2_weight = reader.Floats("norm2_weight");
  r.weights.norm2_bias = reader.Floats("norm2_bias");
  r.weights.w_up = ReadRequiredWeight(reader, "w_up", 2);
  r.weights.w_down = ReadRequiredWeight(reader, "w_down", 2);
  r.weights.w_gate = ReadWeight(reader, "w_gate", 2);
  r.weights.b_up = reader.Floats("b_up");
  r.weights.b_gate = reader.Floats("b_gate");
  r.weights.b_down = reader.Floats("b_down");
  r.options.attention = heads.options;
  r.options.norm = ReadChoice<Norm>(reader, "norm", {{"layer", Norm::kLayer}, {"rms", Norm::kRms}})
                       .value_or(Norm::kLayer);
  r.options.order = ReadChoice<NormOrder>(reader, "norm_order",
                                          {{"pre", NormOrder::kPre}, {"post", NormOrder::kPost}})
                        .value_or(NormOrder::kPre);
  r.options.activation = ReadActivation(reader);
  r.options.epsilon = reader.Number("epsilon").value_or(r.options.epsilon);
  return r;
}

std::vector<OutputSpec> PlanTransformerBlock(const RequestReader& reader) {
  const BlockRequest r = ReadBlock(reader);
  ValidateTransformerBlock(r.x, r.weights, r.options);
  return {{"output", 3, {r.x.shape[0], r.x.shape[2], r.x.shape[3], 0}}};
}

void RunTransformerBlock(const RequestReader& reader, std::span<const NamedTensor> outputs,
                         ThreadPool* pool) {
  const BlockRequest r = ReadBlock(reader);
  TransformerBlock(r.x, r.weights, r.options, RowsOutput(outputs, "output"), pool);
}

}  // namespace heed
