// Routing attention: each cluster attends within the queries and keys nearest to its centroid; a
// query averages what its clusters give.
//
// Source: Roy et al. 2020, arXiv:2003.05997, section 4.1 and algorithm 1.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "choice.h"
#include "dropout.h"
#include "exact.h"
#include "inputs.h"
#include "softmax.h"
#include "visibility.h"

namespace heed::reference::routing {
namespace {

// [1, num_heads, num_clusters, head_dim].
Array ReadCentroids(const Request& request, const Qkv& qkv) {
  if (const auto given = ReadFloats(request, "centroids", 3)) {
    for (const char* name : {"num_clusters", "centroid_seed"}) {
      if (FindParam(request, name) == nullptr) continue;
      throw Error(ErrorCode::kOption, std::string(name) + " beside centroids");
    }
    if (given->shape[2] < 1) throw Error(ErrorCode::kRange, "centroids has no clusters");
    if (given->shape[1] != qkv.num_heads || given->shape[3] != qkv.head_dim) {
      throw Error(ErrorCode::kShape, "centroids must be [num_heads, num_clusters, head_dim]");
    }
    return *given;
  }
  Array centroids;
  centroids.shape = {1, qkv.num_heads, ReadAtLeastOne(request, "num_clusters", 16), qkv.head_dim};
  const auto [one, heads, clusters, dim] = centroids.shape;
  centroids.values = SeededNormals(ReadSeed(request, "centroid_seed"), heads * clusters * dim);
  return centroids;
}

// The tokens that a cluster takes of the first `length`.
std::vector<int64_t> Members(const Array& x, int64_t b, int64_t h, int64_t length,
                             std::span<const double> centroid, int64_t most) {
  std::vector<double> scores;
  for (int64_t t = 0; t < length; ++t) {
    const double norm = std::sqrt(DotInOrder(x.Row(b, h, t), x.Row(b, h, t)));
    scores.push_back(norm == 0.0 ? 0.0 : DotInOrder(centroid, x.Row(b, h, t)) / norm);
  }
  return BestOf(scores, most);
}

}  // namespace

std::vector<Result> Run(const Request& request) {
  const Qkv qkv = ReadQkv(request);
  RefuseRankOfLengths(request);
  const Array centroids = ReadCentroids(request, qkv);
  const int64_t clusters = centroids.shape[2];
  const int64_t most = ReadAtLeastOne(request, "cluster_tokens",
                                      std::max<int64_t>(1, (qkv.kv_len + clusters - 1) / clusters));
  const Visibility visible(request, qkv);
  const PairScore score = DotScore(qkv, ReadScale(request, qkv));
  const int64_t rows = qkv.batch * qkv.num_heads * qkv.q_len;
  Result output = {"output", 4, {qkv.batch, qkv.num_heads, qkv.q_len, qkv.head_dim_v}, {}};
  output.values.resize(rows * qkv.head_dim_v);
  Result weights = {"weights", 4, {qkv.batch, qkv.num_heads, qkv.q_len, qkv.kv_len}, {}};
  weights.values.resize(rows * qkv.kv_len);
  std::vector<double> counts(rows);
  for (int64_t b = 0; b < qkv.batch && qkv.q_len > 0; ++b) {
    for (int64_t h = 0; h < qkv.num_heads; ++h) {
      for (int64_t c = 0; c < clusters; ++c) {
        const auto centroid = centroids.Row(0, h, c);
        const auto queries = Members(qkv.q, b, h, qkv.q_len, centroid, most);
        const auto keys = Members(qkv.k, b, qkv.KvHead(h), visible.Length(b, 0), centroid, most);
        for (const int64_t i : queries) {
          std::vector<double> row(qkv.kv_len, kMinusInfinity);
          for (const int64_t j : keys) {
            if (visible(b, h, i, j)) row[j] = score(b, h, i, j);
          }
          const std::vector<double> scores = row;
          if (Softmax(row, kMinusInfinity) == kMinusInfinity) continue;
          const int64_t at = (b * qkv.num_heads + h) * qkv.q_len + i;
          counts[at] += 1.0;
          for (int64_t j = 0; j < qkv.kv_len; ++j) {
            if (scores[j] == kMinusInfinity) continue;
            weights.values[at * qkv.kv_len + j] += row[j];
            for (int64_t d = 0; d < qkv.head_dim_v; ++d) {
              output.values[at * qkv.head_dim_v + d] += row[j] * qkv.v(b, qkv.KvHead(h), j, d);
            }
          }
        }
      }
    }
  }
  for (size_t n = 0; n < output.values.size(); ++n) {
    output.values[n] /= std::max(1.0, counts[n / qkv.head_dim_v]);
  }
  for (size_t n = 0; n < weights.values.size(); ++n) {
    weights.values[n] /= std::max(1.0, counts[n / qkv.kv_len]);
  }
  std::vector<Result> results = {output};
  if (ReadFlag(request, "return_weights")) results.push_back(weights);
  return results;
}

}  // namespace heed::reference::routing
