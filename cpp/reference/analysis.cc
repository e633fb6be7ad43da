#include "analysis.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "heed/reference.h"

namespace heed::reference {

WeightMaps Weights(const Request& request) {
  Request asked = request;
  asked.params.push_back({"return_weights", true});
  WeightMaps maps;
  for (const Result& result : Run(asked)) {
    if (result.name != "weights") continue;
    maps.batch = result.shape[0], maps.num_heads = result.shape[1];
    maps.q_len = result.shape[2], maps.kv_len = result.shape[3];
    maps.weights = result.values;
  }
  return maps;
}

double Entropy(std::span<const double> row) {
  double sum = 0;
  for (const double p : row) {
    if (p != 0) sum -= p * std::log(p);
  }
  return sum;
}

double ExpectedDistance(std::span<const double> row, int64_t position) {
  double sum = 0;
  for (size_t j = 0; j < row.size(); ++j) {
    sum += row[j] * std::abs(static_cast<double>(position - static_cast<int64_t>(j)));
  }
  return sum;
}

std::vector<int64_t> Ranking(std::span<const double> row) {
  std::vector<int64_t> order;
  for (size_t j = 0; j < row.size(); ++j) {
    if (row[j] > 0) order.push_back(static_cast<int64_t>(j));
  }
  std::ranges::stable_sort(order, std::greater<>(), [&](int64_t j) { return row[j]; });
  return order;
}

std::vector<double> ColumnSums(const WeightMaps& maps, int64_t b, int64_t h) {
  std::vector<double> sums(maps.kv_len);
  for (int64_t i = 0; i < maps.q_len; ++i) {
    for (int64_t j = 0; j < maps.kv_len; ++j) sums[j] += maps.Row(b, h, i)[j];
  }
  return sums;
}

double Cosine(std::span<const double> a, std::span<const double> b) {
  const double aa = std::inner_product(a.begin(), a.end(), a.begin(), 0.0);
  const double bb = std::inner_product(b.begin(), b.end(), b.begin(), 0.0);
  if (aa == 0 || bb == 0) return 0;
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0) / std::sqrt(aa * bb);
}

double Frobenius(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t n = 0; n < a.size(); ++n) sum += (a[n] - b[n]) * (a[n] - b[n]);
  return std::sqrt(sum);
}

double JensenShannon(std::span<const double> a, std::span<const double> b, int64_t row_len) {
  double sum = 0;
  for (size_t n = 0; n < a.size(); ++n) {
    const double mean = (a[n] + b[n]) / 2;
    if (a[n] != 0) sum += a[n] * std::log(a[n] / mean) / 2;
    if (b[n] != 0) sum += b[n] * std::log(b[n] / mean) / 2;
  }
  const double rows = static_cast<double>(a.size()) / static_cast<double>(row_len);
  return rows == 0 ? 0 : sum / rows;
}

std::vector<double> MixedMap(const WeightMaps& maps, int64_t b, double residual) {
  const int64_t len = maps.q_len;
  std::vector<double> mixed(len * len);
  for (int64_t i = 0; i < len; ++i) {
    for (int64_t j = 0; j < len; ++j) {
      double sum = 0;
      for (int64_t h = 0; h < maps.num_heads; ++h) sum += maps.Row(b, h, i)[j];
      mixed[i * len + j] = (1 - residual) * sum / static_cast<double>(maps.num_heads);
    }
    mixed[i * len + i] += residual;
  }
  return mixed;
}

std::vector<double> Product(std::span<const double> a, std::span<const double> b, int64_t len) {
  std::vector<double> product(len * len);
  for (int64_t i = 0; i < len; ++i) {
    for (int64_t j = 0; j < len; ++j) {
      for (int64_t n = 0; n < len; ++n) product[i * len + j] += a[i * len + n] * b[n * len + j];
    }
  }
  return product;
}

double MaxFlow(std::span<const double> capacities, int64_t layers, int64_t len, int64_t source,
               int64_t sink) {
  // A dense graph of all nodes, level by level; level 0 is below the first layer.
  const int64_t nodes = (layers + 1) * len;
  std::vector<double> rest(nodes * nodes);
  for (int64_t l = 0; l < layers; ++l) {
    for (int64_t i = 0; i < len; ++i) {
      for (int64_t j = 0; j < len; ++j) {
        rest[((l + 1) * len + i) * nodes + l * len + j] = capacities[(l * len + i) * len + j];
      }
    }
  }
  const int64_t from = layers * len + source;
  double flow = 0;
  while (true) {
    std::vector<int64_t> parent(nodes, -1);
    std::vector<int64_t> queue = {from};
    parent[from] = from;
    for (size_t head = 0; head < queue.size(); ++head) {
      for (int64_t to = 0; to < nodes; ++to) {
        if (parent[to] >= 0 || rest[queue[head] * nodes + to] <= 0) continue;
        parent[to] = queue[head];
        queue.push_back(to);
      }
    }
    if (parent[sink] < 0) return flow;
    double most = std::numeric_limits<double>::infinity();
    for (int64_t n = sink; n != from; n = parent[n]) {
      most = std::min(most, rest[parent[n] * nodes + n]);
    }
    for (int64_t n = sink; n != from; n = parent[n]) {
      rest[parent[n] * nodes + n] -= most;
      rest[n * nodes + parent[n]] += most;
    }
    flow += most;
  }
}

}  // namespace heed::reference
