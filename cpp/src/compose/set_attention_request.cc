// induced_set and perceiver by name.
#include "src/compose/set_attention_request.h"

#include <string>

#include "src/choice.h"
#include "src/compose/request.h"
#include "src/compose/set_attention.h"
#include "src/layers/request.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed {
namespace {

constexpr Choice<SetBlock> kBlocks[] = {
    {"isab", SetBlock::kIsab}, {"pma", SetBlock::kPma}, {"sab", SetBlock::kSab}};
constexpr Choice<SetResidual> kResiduals[] = {{"input", SetResidual::kInput},
                                              {"projected", SetResidual::kProjected}};
constexpr Choice<bool> kNorms[] = {{"layer", true}, {"none", false}};
constexpr Choice<bool> kQueryResiduals[] = {{"add", true}, {"none", false}};

void CheckStack(const RequestReader& reader, const char* name, int64_t blocks, int64_t rows,
                int64_t dim) {
  const AnyTensor* tensor = reader.Input(name);
  if (tensor == nullptr) return;
  if (tensor->rank == 3 && tensor->shape[0] == blocks && tensor->shape[1] == rows &&
      tensor->shape[2] == dim) {
    return;
  }
  Fail(ErrorCode::kShape, "{} must have the shape [{}, {}, embed_dim = {}]",
       {name, blocks, rows, dim});
}

void ReadSetWeights(const RequestReader& reader, int64_t heads, int64_t blocks,
                    InducedSetRequest& r) {
  const int64_t dim = r.x.shape[3], matrices = MatricesOf(r.options), last = matrices - 1;
  const bool has_output = HasOutputMatrix(r.options);
  const TensorView<const float> all = ReadRequiredWeight(reader, "set_weights", 4);
  CheckInput("set_weights", all);
  CheckShape("set_weights", all.shape, {blocks, matrices, dim, dim},
             has_output ? "[2 (isab) or 1, 5 (q, k, v, o, ff), embed_dim, embed_dim]"
                        : "[2 (isab) or 1, 4 (q, k, v, ff: set_residual projected has no output "
                          "matrix), embed_dim, embed_dim]");
  CheckStack(reader, "set_biases", blocks, matrices, dim);
  CheckStack(reader, "norm_weights", blocks, 2, dim);
  CheckStack(reader, "norm_biases", blocks, 2, dim);
  const std::span<const float> biases = reader.Floats("set_biases");
  const std::span<const float> factors = reader.Floats("norm_weights");
  const std::span<const float> shifts = reader.Floats("norm_biases");
  for (int64_t n = 0; n < blocks; ++n) {
    SetBlockWeights& w = r.weights[n];
    w.attention.w_q = HeadsOfBlock(all, n, 0, heads);
    w.attention.w_k = HeadsOfBlock(all, n, 1, heads);
    w.attention.w_v = HeadsOfBlock(all, n, 2, heads);
    if (has_output) w.attention.w_o = OutputOfBlock(all, n, heads);
    w.w_ff = HeadsOfBlock(all, n, last, 1);
    w.attention.b_q = RowOfBlock(biases, matrices, n, 0, dim);
    w.attention.b_k = RowOfBlock(biases, matrices, n, 1, dim);
    w.attention.b_v = RowOfBlock(biases, matrices, n, 2, dim);
    if (has_output) w.attention.b_o = RowOfBlock(biases, matrices, n, 3, dim);
    w.b_ff = RowOfBlock(biases, matrices, n, last, dim);
    w.norm1_weight = RowOfBlock(factors, 2, n, 0, dim);
    w.norm2_weight = RowOfBlock(factors, 2, n, 1, dim);
    w.norm1_bias = RowOfBlock(shifts, 2, n, 0, dim);
    w.norm2_bias = RowOfBlock(shifts, 2, n, 1, dim);
  }
}

void ReadSetOptions(const RequestReader& reader, InducedSetRequest& r) {
  if (!ReadChoice(reader, "set_norm", kNorms).value_or(true)) r.options.norm.reset();
  r.options.epsilon = reader.Number("epsilon").value_or(r.options.epsilon);
  r.options.attention.attention.scale = reader.Number("scale");
  r.options.attention.attention.key_lengths = reader.Ints("key_lengths");
  const AnyTensor* lengths = reader.Input("key_lengths");
  if (lengths != nullptr && (lengths->rank != 1 || lengths->shape[0] != r.x.shape[0])) {
    Fail(ErrorCode::kShape, "key_lengths must have the shape [batch] = [{}]", {r.x.shape[0]});
  }
  r.options.residual = ReadChoice(reader, "set_residual", kResiduals).value_or(SetResidual::kInput);
  r.options = WithOwnScale(r.options, r.x.shape[3]);
}

}  // namespace

InducedSetRequest ReadInducedSet(const RequestReader& reader) {
  InducedSetRequest r;
  r.x = ReadRows(reader, "x");
  r.block = ReadChoice(reader, "set_block", kBlocks).value_or(SetBlock::kIsab);
  const bool needed = r.block != SetBlock::kSab;
  if (needed != (reader.Input("inducing") != nullptr)) {
    Fail(ErrorCode::kOption, needed ? "input inducing is missing"
                                    : "inducing: a set that attends to itself (sab) has none");
  }
  if (needed) r.inducing = ReadWeight(reader, "inducing", 2);
  const int64_t heads = reader.Count("num_heads").value_or(1);
  if (heads < 1 || r.x.shape[3] % heads != 0) {
    Fail(ErrorCode::kRange, "num_heads = {}; it must divide embed_dim = {}", {heads, r.x.shape[3]});
  }
  ReadSetOptions(reader, r);
  ReadSetWeights(reader, heads, r.block == SetBlock::kIsab ? 2 : 1, r);
  return r;
}

PerceiverRequest ReadPerceiver(const RequestReader& reader) {
  PerceiverRequest r;
  r.input = ReadRows(reader, "key");
  r.latents = RowsOfBatch(ReadRows(reader, "latents"), r.input.shape[0]);
  const MultiHeadRequest heads = ReadMultiHead(reader, r.latents, r.input, r.input);
  r.options.attention = heads.options;
  r.options.activation = ReadActivation(reader);
  r.options.query_residual = ReadChoice(reader, "query_residual", kQueryResiduals).value_or(true);
  r.options.epsilon = reader.Number("epsilon").value_or(r.options.epsilon);
  r.weights.attention = heads.weights;
  r.weights.norm1_weight = reader.Floats("norm1_weight");
  r.weights.norm1_bias = reader.Floats("norm1_bias");
  r.weights.norm2_weight = reader.Floats("norm2_weight");
  r.weights.norm2_bias = reader.Floats("norm2_bias");
  r.weights.key_norm_weight = reader.Floats("key_norm_weight");
  r.weights.key_norm_bias = reader.Floats("key_norm_bias");
  r.weights.w_up = ReadRequiredWeight(reader, "w_up", 2);
  r.weights.w_down = ReadRequiredWeight(reader, "w_down", 2);
  r.weights.b_up = reader.Floats("b_up");
  r.weights.b_down = reader.Floats("b_down");
  return r;
}

std::vector<OutputSpec> PlanInducedSet(const RequestReader& reader) {
  const InducedSetRequest r = ReadInducedSet(reader);
  const int64_t batch = r.x.shape[0];
  const TensorView<const float> queries =
      r.block == SetBlock::kSab ? r.x : RowsOfBatch(r.inducing, batch);
  ValidateSetBlock(queries, r.x, r.weights[0], r.options);
  if (r.block == SetBlock::kIsab) {
    ValidateSetBlock(r.x, queries, r.weights[1], OptionsOfSecond(r.options));
  }
  const int64_t len = r.block == SetBlock::kPma ? queries.shape[2] : r.x.shape[2];
  return {{"output", 3, {batch, len, r.x.shape[3], 0}}};
}

void RunInducedSet(const RequestReader& reader, std::span<const NamedTensor> outputs,
                   ThreadPool* pool) {
  const InducedSetRequest r = ReadInducedSet(reader);
  const TensorView<float> output = RowsOutput(outputs, "output");
  if (r.block == SetBlock::kIsab) {
    InducedSetAttention(r.x, r.inducing, r.weights[0], r.weights[1], r.options, output, pool);
  } else {
    const TensorView<const float> queries = r.block == SetBlock::kSab ? r.x : r.inducing;
    SetAttentionBlock(queries, r.x, r.weights[0], r.options, output, pool);
  }
}

std::vector<OutputSpec> PlanPerceiver(const RequestReader& reader) {
  const PerceiverRequest r = ReadPerceiver(reader);
  ValidatePerceiver(r.latents, r.input, r.weights, r.options);
  return {{"output", 3, {r.latents.shape[0], r.latents.shape[2], r.latents.shape[3], 0}}};
}

void RunPerceiver(const RequestReader& reader, std::span<const NamedTensor> outputs,
                  ThreadPool* pool) {
  const PerceiverRequest r = ReadPerceiver(reader);
  PerceiverBlock(r.latents, r.input, r.weights, r.options, RowsOutput(outputs, "output"), pool);
}

}  // namespace heed
