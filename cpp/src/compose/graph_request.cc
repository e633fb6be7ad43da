// Graph attention behind heed::Run.
#include <string>

#include "src/choice.h"
#include "src/compose/graph_problem.h"
#include "src/compose/request.h"
#include "src/message.h"

namespace heed {
namespace {

constexpr Choice<GraphScore> kScores[] = {{"gat", GraphScore::kGat}, {"gatv2", GraphScore::kGatV2}};

// The typed function sees numbers only, which would also let [2, num_edges] pass.
void CheckRank2(const RequestReader& reader, const char* name, int axis, int64_t extent,
                const char* expected) {
  const AnyTensor* tensor = reader.Input(name);
  if (tensor == nullptr) {
    Fail(ErrorCode::kOption, "input {} is missing", {name});
  }
  if (tensor->rank == 2 && tensor->shape[static_cast<size_t>(axis)] == extent) return;
  Fail(ErrorCode::kShape, "{} must have the shape {}", {name, expected});
}

}  // namespace

GraphRequest ReadGraph(const RequestReader& reader) {
  GraphRequest r;
  r.q = reader.RequiredTensor("q");
  r.k = reader.RequiredTensor("k");
  r.v = reader.RequiredTensor("v");
  CheckRank2(reader, "edges", 1, 2, "[num_edges, 2], pairs of source and target");
  CheckRank2(reader, "score_weight", 0, r.q.shape[1],
             "[num_heads, 2 head_dim] (gat) or [num_heads, head_dim] (gatv2)");
  r.edges = reader.Ints("edges");
  r.score_weight = reader.Floats("score_weight");
  r.options.score = ReadChoice(reader, "graph_score", kScores).value_or(GraphScore::kGat);
  r.options.negative_slope = reader.Number("negative_slope").value_or(r.options.negative_slope);
  return r;
}

std::vector<OutputSpec> PlanGraph(const RequestReader& reader) {
  const GraphRequest r = ReadGraph(reader);
  const GraphProblem p = ValidateGraphInputs(r.q, r.k, r.v, r.edges, r.score_weight, r.options);
  const Extents& q = p.q.shape;
  std::vector<OutputSpec> specs;
  specs.push_back({"output", 4, {q[0], q[1], q[2], p.v.shape[3]}});
  if (reader.Flag("return_lse")) specs.push_back({"lse", 3, {q[0], q[1], q[2], 0}});
  if (reader.Flag("return_weights")) specs.push_back({"weights", 3, {q[0], q[1], p.num_edges, 0}});
  return specs;
}

void RunGraph(const RequestReader& reader, std::span<const NamedTensor> outputs, ThreadPool* pool) {
  const GraphRequest r = ReadGraph(reader);
  GraphOutputs out;
  out.output = OutputView(outputs, "output");
  if (reader.Flag("return_lse")) out.lse = OutputView(outputs, "lse");
  if (reader.Flag("return_weights")) out.weights = OutputView(outputs, "weights");
  GraphAttention(r.q, r.k, r.v, r.edges, r.score_weight, r.options, out, pool);
}

}  // namespace heed
