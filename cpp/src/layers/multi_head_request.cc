// multi_head, multi_query and grouped_query by name: one layer, three rows.
#include "src/layers/multi_head_request.h"

#include <utility>

#include "heed/layers.h"
#include "src/exact/request.h"
#include "src/layers/multi_head.h"
#include "src/layers/request.h"
#include "src/message.h"

namespace heed {
namespace {

MultiHeadWeights ReadWeights(const RequestReader& reader) {
  MultiHeadWeights w;
  w.w_q = ReadRequiredWeight(reader, "w_q", 3);
  w.w_k = ReadRequiredWeight(reader, "w_k", 3);
  w.w_v = ReadRequiredWeight(reader, "w_v", 3);
  w.w_o = ReadWeight(reader, "w_o", 3);
  w.b_q = reader.Floats("b_q");
  w.b_k = reader.Floats("b_k");
  w.b_v = reader.Floats("b_v");
  w.b_o = reader.Floats("b_o");
  w.bias_k = reader.Floats("bias_k");
  w.bias_v = reader.Floats("bias_v");
  return w;
}

std::vector<OutputSpec> Plan(const MultiHeadRequest& r) {
  const MultiHeadShape s =
      ValidateMultiHead(r.query, r.key, r.value, r.weights, r.options, r.return_lse);
  std::vector<OutputSpec> specs;
  specs.push_back({"output", 3, {s.batch, s.q_len, s.out_dim, 0}});
  if (r.return_lse) specs.push_back({"lse", 3, {s.batch, s.num_heads, s.q_len, 0}});
  const int64_t columns = s.kv_len + s.extra;
  if (r.return_weights && r.average_weights) {
    specs.push_back({"weights", 3, {s.batch, s.q_len, columns, 0}});
  } else if (r.return_weights) {
    specs.push_back({"weights", 4, {s.batch, s.num_heads, s.q_len, columns}});
  }
  return specs;
}

void RunRequest(const MultiHeadRequest& r, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  MultiHead(r.query, r.key, r.value, r.weights, r.options, FindOutputs(r, outputs), pool);
}

}  // namespace

MultiHeadOutputs FindOutputs(const MultiHeadRequest& r, std::span<const NamedTensor> outputs) {
  MultiHeadOutputs out;
  out.output = RowsOutput(outputs, "output");
  if (r.return_lse) out.lse = OutputView(outputs, "lse");
  if (r.return_weights) {
    out.weights =
        r.average_weights ? RowsOutput(outputs, "weights") : OutputView(outputs, "weights");
  }
  return out;
}

MultiHeadRequest ReadMultiHead(const RequestReader& reader, const TensorView<const float>& query,
                               const TensorView<const float>& key,
                               const TensorView<const float>& value) {
  MultiHeadRequest r;
  r.query = query;
  r.key = key;
  r.value = value;
  r.weights = ReadWeights(reader);
  AttentionRequest heads;
  const MultiHeadWeights& w = r.weights;
  heads.q.shape = {query.shape[0], w.w_q.shape[1], query.shape[2], w.w_q.shape[2]};
  heads.k.shape = {key.shape[0], w.w_k.shape[1], key.shape[2], w.w_k.shape[2]};
  heads.v.shape = {value.shape[0], w.w_v.shape[1], value.shape[2], w.w_v.shape[2]};
  const bool extra_k = reader.Input("bias_k") != nullptr;
  if (extra_k != (reader.Input("bias_v") != nullptr)) {
    throw Error(ErrorCode::kOption, "bias_k and bias_v go together; one of them is missing");
  }
  if (extra_k && heads.q.shape[3] * heads.v.shape[3] == 0) {
    throw Error(ErrorCode::kUnsupported, "bias_k and bias_v with heads of 0 dimensions");
  }
  ReadExactOptions(reader, heads);
  r.options.attention = heads.options;
  r.options.add_zero_attn = reader.Flag("add_zero_attn");
  r.options.head_mask = reader.Floats("head_mask");
  r.return_lse = heads.return_lse;
  r.return_weights = heads.return_weights;
  r.average_weights = reader.Flag("average_weights");
  return r;
}

MultiHeadRequest ReadMultiHead(const RequestReader& reader) {
  return ReadMultiHead(reader, ReadRows(reader, "query"), ReadRows(reader, "key"),
                       ReadRows(reader, "value"));
}

MultiHeadRequest ReadMultiQuery(const RequestReader& reader) {
  const MultiHeadRequest r = ReadMultiHead(reader);
  for (const auto& [name, weight] : {std::pair("w_k", r.weights.w_k), {"w_v", r.weights.w_v}}) {
    if (weight.shape[1] != 1) {
      Fail(ErrorCode::kShape, "{} has {} heads; multi_query has one for all queries",
           {name, weight.shape[1]});
    }
  }
  return r;
}

std::vector<OutputSpec> PlanMultiHead(const RequestReader& reader) {
  return Plan(ReadMultiHead(reader));
}

void RunMultiHead(const RequestReader& reader, std::span<const NamedTensor> outputs,
                  ThreadPool* pool) {
  RunRequest(ReadMultiHead(reader), outputs, pool);
}

std::vector<OutputSpec> PlanMultiQuery(const RequestReader& reader) {
  return Plan(ReadMultiQuery(reader));
}

void RunMultiQuery(const RequestReader& reader, std::span<const NamedTensor> outputs,
                   ThreadPool* pool) {
  RunRequest(ReadMultiQuery(reader), outputs, pool);
}

}  // namespace heed
