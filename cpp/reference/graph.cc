// Graph attention: softmax over the edges that arrive at a node, weighted sum of their sources.
//
// Source: Velickovic et al. 2018, arXiv:1710.10903, equations 1 to 6 (GAT); Brody et al. 2022,
// arXiv:2105.14491, equation 7 (GATv2).
#include <cmath>
#include <string>
#include <vector>

#include "inputs.h"
#include "softmax.h"

namespace heed::reference::graph {
namespace {

struct Edge {
  int64_t source, target;
};

std::vector<Edge> ReadEdges(const Request& request, const Qkv& qkv) {
  const AnyTensor& tensor = *FindInput(request, "edges");
  if (tensor.rank != 2 || tensor.shape[1] != 2) {
    throw Error(ErrorCode::kShape, Describe("edges", tensor) + ": expected [num_edges, 2]");
  }
  const std::vector<double> numbers = ReadIntegers(request, "edges")->values;
  std::vector<Edge> edges;
  for (size_t e = 0; e < numbers.size() / 2; ++e) {
    edges.push_back(
        {static_cast<int64_t>(numbers[2 * e]), static_cast<int64_t>(numbers[2 * e + 1])});
    const auto [source, target] = edges.back();
    if (source < 0 || source >= qkv.kv_len || target < 0 || target >= qkv.q_len) {
      throw Error(ErrorCode::kRange, "edges has (" + std::to_string(source) + ", " +
                                         std::to_string(target) + "): there is no such node");
    }
  }
  return edges;
}

struct Scorer {
  const Qkv& qkv;
  std::vector<double> weight;  // [num_heads, 2 head_dim] or [num_heads, head_dim]
  bool gat;
  double slope;

  double Leaky(double x) const { return x < 0.0 ? slope * x : x; }

  double operator()(int64_t b, int64_t h, const Edge& edge) const {
    const auto q = qkv.q.Row(b, h, edge.target);
    const auto k = qkv.k.Row(b, qkv.KvHead(h), edge.source);
    const int64_t width = qkv.head_dim;
    double sum = 0.0;
    for (int64_t d = 0; d < width; ++d) {
      if (gat) {
        sum += weight[h * 2 * width + d] * q[d] + weight[(h * 2 + 1) * width + d] * k[d];
      } else {
        sum += weight[h * width + d] * Leaky(q[d] + k[d]);
      }
    }
    return gat ? Leaky(sum) : sum;
  }
};

Scorer MakeScorer(const Request& request, const Qkv& qkv) {
  const bool gat = ReadWord(request, "graph_score", {"gat", "gatv2"}).value_or("gat") == "gat";
  const AnyTensor& weight = *FindInput(request, "score_weight");
  const int64_t width = qkv.head_dim * (gat ? 2 : 1);
  if (weight.rank != 2 || weight.shape[0] != qkv.num_heads || weight.shape[1] != width) {
    throw Error(ErrorCode::kShape, Describe("score_weight", weight) + ": expected [num_heads, " +
                                       std::to_string(width) + "]");
  }
  Scorer scorer{qkv, ReadFloats(request, "score_weight", 2)->values, gat,
                ReadNumber(request, "negative_slope").value_or(0.2)};
  for (const double w : scorer.weight) {
    if (!std::isfinite(w)) throw Error(ErrorCode::kRange, "score_weight must be finite");
  }
  return scorer;
}

Result MakeResult(const char* name, int rank, const Extents& shape) {
  int64_t count = 1;
  for (int axis = 0; axis < rank; ++axis) count *= shape[axis];
  return {name, rank, shape, std::vector<double>(count)};
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  const std::vector<Edge> edges = ReadEdges(request, qkv);
  const Scorer score = MakeScorer(request, qkv);
  const int64_t num_edges = edges.size();
  Result output = MakeResult("output", 4, {qkv.batch, qkv.num_heads, qkv.q_len, qkv.head_dim_v});
  Result lse = MakeResult("lse", 3, {qkv.batch, qkv.num_heads, qkv.q_len});
  Result weights = MakeResult("weights", 3, {qkv.batch, qkv.num_heads, num_edges});

  for (int64_t n = 0; n < qkv.batch * qkv.num_heads * qkv.q_len; ++n) {
    const int64_t i = n % qkv.q_len, h = n / qkv.q_len % qkv.num_heads;
    const int64_t b = n / qkv.q_len / qkv.num_heads;
    std::vector<double> row(num_edges, kMinusInfinity);
    for (int64_t e = 0; e < num_edges; ++e) {
      if (edges[e].target == i) row[e] = score(b, h, edges[e]);
    }
    const std::vector<double> scores = row;
    lse.values[n] = Softmax(row, kMinusInfinity);
    for (int64_t e = 0; e < num_edges; ++e) {
      if (edges[e].target == i) {
        weights.values[(b * qkv.num_heads + h) * num_edges + e] = row[e];
      }
      if (scores[e] == kMinusInfinity) continue;
      const auto v = qkv.v.Row(b, qkv.KvHead(h), edges[e].source);
      for (int64_t d = 0; d < qkv.head_dim_v; ++d) {
        output.values[n * qkv.head_dim_v + d] += row[e] * v[d];
      }
    }
  }
  std::vector<Result> results = {output};
  if (ReadFlag(request, "return_lse")) results.push_back(lse);
  if (ReadFlag(request, "return_weights")) results.push_back(weights);
  return results;
}

}  // namespace heed::reference::graph
