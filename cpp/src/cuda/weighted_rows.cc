// Graph attention and attention-free transformers by name, on the device.
#include <limits>
#include <vector>

#include "src/compose/attention_free_problem.h"
#include "src/compose/graph_problem.h"
#include "src/compose/request.h"
#include "src/cuda/request_rows.h"
#include "src/cuda/step_calls.h"

namespace heed::cuda {
namespace {

// Rows of one number each, or absent.
FloatRows<float> NumbersOfRows(const RequestReader& reader, const char* flag,
                               std::span<const NamedTensor> outputs, const char* name) {
  return reader.Flag(flag) ? RowsOf(OutputView(outputs, name)) : FloatRows<float>{};
}

// Sends the edges, sorted by target.
void SendEdges(const GraphProblem& p, ComposedSteps& steps, GraphParams& params) {
  std::vector<int32_t> begin, sources, edges;
  for (const int64_t n : p.begin) begin.push_back(Narrow(n));
  for (const int64_t edge : p.order) {
    edges.push_back(Narrow(edge));
    sources.push_back(p.edges[static_cast<size_t>(2 * edge)]);
  }
  params.begin = steps.SendArray(std::span<const int32_t>(begin));
  params.sources = steps.SendArray(std::span<const int32_t>(sources));
  params.edges = steps.SendArray(std::span<const int32_t>(edges));
}

void RunGraphRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                 ComposedSteps& steps) {
  const GraphRequest r = ReadGraph(reader);
  const GraphProblem p = ValidateGraphInputs(r.q, r.k, r.v, r.edges, r.score_weight, r.options);
  GraphParams params{};
  params.q = RowsOf(p.q);
  params.k = RowsOf(p.k);
  params.v = RowsOf(p.v);
  params.output = RowsOf(OutputView(outputs, "output"));
  params.lse = NumbersOfRows(reader, "return_lse", outputs, "lse");
  params.weights = NumbersOfRows(reader, "return_weights", outputs, "weights");
  SendEdges(p, steps, params);
  params.score_weight = steps.SendArray(p.score_weight);
  params.scores = steps.Allocate({p.q.shape[0], p.q.shape[1], p.num_edges, 1}).data;
  params.negative_slope = p.negative_slope;
  params.is_gat = p.score == GraphScore::kGat;
  SetHeads(p.q.shape, params);
  params.group = Narrow(std::max<int64_t>(p.group, 1));
  params.len = Narrow(p.q.shape[2]);
  params.head_dim = Narrow(p.q.shape[3]);
  params.width = Narrow(p.v.shape[3]);
  params.num_edges = Narrow(p.num_edges);
  steps.Run(params);
}

// Which keys are seen: 0 or -infinity for every pair.
TensorView<float> SeenPairs(ComposedSteps& steps, const AttentionFreeRequest& p) {
  const auto [batch, heads, len, width] = p.q.shape;
  const TensorView<float> seen = steps.Allocate({batch, heads, len, p.k.shape[2]});
  AttentionOptions options = p.options.attention;
  options.scale = 1;
  options.bias = {};
  AttentionOutputs outputs;
  outputs.scores = seen;
  outputs.output = NoColumns(seen, p.q.shape);
  steps.Attend(ColumnsOf(p.q, 0, 0), ColumnsOf(p.k, 0, 0), ColumnsOf(p.v, 0, 0), options, outputs);
  return seen;
}

void RunAttentionFreeRow(const RequestReader& reader, std::span<const NamedTensor> outputs,
                         ComposedSteps& steps) {
  const AttentionFreeRequest r = ReadAttentionFree(reader);
  const AttentionFreeProblem p = ValidateAttentionFree(r.q, r.k, r.v, r.options);
  ChannelParams params{};
  params.q = RowsOf(p.q);
  params.k = RowsOf(p.k);
  params.v = RowsOf(p.v);
  params.seen = RowsOf(TensorView<const float>(SeenPairs(steps, r)));
  params.bias = NumbersOf(p.pairs.options.bias);
  params.positions = steps.SendArray(std::span<const int64_t>(p.pairs.position));
  params.local = p.local.value_or(0);
  params.output = RowsOf(OutputView(outputs, "output"));
  SetHeads(p.q.shape, params);
  params.group = Narrow(std::max<int64_t>(p.pairs.group, 1));
  params.len = Narrow(p.q.shape[2]);
  params.kv_len = Narrow(p.k.shape[2]);
  params.width = Narrow(p.q.shape[3]);
  steps.Run(params);
}

constexpr DeviceRow kRows[] = {{"graph", PlanGraph, RunGraphRow},
                               {"attention_free", PlanAttentionFree, RunAttentionFreeRow}};

}  // namespace

std::span<const DeviceRow> WeightedRows() { return kRows; }

}  // namespace heed::cuda
