// multi_head, multi_query and grouped_query by name: one layer, three rows.
#include "heed/layers.h"
#include "src/exact/request.h"
#include "src/layers/multi_head.h"
#include "src/layers/request.h"

namespace heed {
namespace {

struct MultiHeadRequest {
  TensorView<const float> query, key, value;
  MultiHeadWeights weights;
  MultiHeadOptions options;
  bool return_lse = false, return_weights = false, average_weights = false;
};

// multi_query has names of its own, whose shapes say that there is one KV head.
enum class KvHeads { kMany, kShared };

MultiHeadWeights ReadWeights(const RequestReader& reader, KvHeads kv_heads) {
  MultiHeadWeights w;
  const bool shared = kv_heads == KvHeads::kShared;
  w.w_q = ReadRequiredWeight(reader, "w_q", 3);
  w.w_k = ReadRequiredWeight(reader, shared ? "w_k_shared" : "w_k", shared ? 2 : 3);
  w.w_v = ReadRequiredWeight(reader, shared ? "w_v_shared" : "w_v", shared ? 2 : 3);
  w.w_o = ReadWeight(reader, "w_o", 3);
  w.b_q = reader.Floats("b_q");
  w.b_k = reader.Floats(shared ? "b_k_shared" : "b_k");
  w.b_v = reader.Floats(shared ? "b_v_shared" : "b_v");
  w.b_o = reader.Floats("b_o");
  w.bias_k = reader.Floats("bias_k");
  w.bias_v = reader.Floats("bias_v");
  return w;
}

MultiHeadRequest ReadMultiHead(const RequestReader& reader, KvHeads kv_heads) {
  MultiHeadRequest r;
  r.query = ReadRows(reader, "query");
  r.key = ReadRows(reader, "key");
  r.value = ReadRows(reader, "value");
  r.weights = ReadWeights(reader, kv_heads);
  AttentionRequest heads;
  const MultiHeadWeights& w = r.weights;
  heads.q.shape = {r.query.shape[0], w.w_q.shape[1], r.query.shape[2], w.w_q.shape[2]};
  heads.k.shape = {r.key.shape[0], w.w_k.shape[1], r.key.shape[2], w.w_k.shape[2]};
  heads.v.shape = {r.value.shape[0], w.w_v.shape[1], r.value.shape[2], w.w_v.shape[2]};
  ReadExactOptions(reader, heads);
  r.options.attention = heads.options;
  r.options.add_zero_attn = reader.Flag("add_zero_attn");
  r.options.head_mask = reader.Floats("head_mask");
  r.return_lse = heads.return_lse;
  r.return_weights = heads.return_weights;
  r.average_weights = reader.Flag("average_weights");
  return r;
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
  MultiHeadOutputs out;
  out.output = RowsOutput(outputs, "output");
  if (r.return_lse) out.lse = OutputView(outputs, "lse");
  if (r.return_weights) {
    out.weights =
        r.average_weights ? RowsOutput(outputs, "weights") : OutputView(outputs, "weights");
  }
  MultiHead(r.query, r.key, r.value, r.weights, r.options, out, pool);
}

}  // namespace

std::vector<OutputSpec> PlanMultiHead(const RequestReader& reader) {
  return Plan(ReadMultiHead(reader, KvHeads::kMany));
}

void RunMultiHead(const RequestReader& reader, std::span<const NamedTensor> outputs,
                  ThreadPool* pool) {
  RunRequest(ReadMultiHead(reader, KvHeads::kMany), outputs, pool);
}

std::vector<OutputSpec> PlanMultiQuery(const RequestReader& reader) {
  return Plan(ReadMultiHead(reader, KvHeads::kShared));
}

void RunMultiQuery(const RequestReader& reader, std::span<const NamedTensor> outputs,
                   ThreadPool* pool) {
  RunRequest(ReadMultiHead(reader, KvHeads::kShared), outputs, pool);
}

}  // namespace heed
